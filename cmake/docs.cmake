# cmake --build build --target docs: the API reference, in build/docs/html (docs/reference).
find_program(DOXYGEN doxygen)
find_program(TUTTI_DOCS_PYTHON python3 HINTS /usr/bin)
if(DOXYGEN)
  # Those of the library and of its adapters, as they lie when they are installed.
  set(reference_headers ${CMAKE_BINARY_DIR}/docs/headers)
  set(reference_filter "${TUTTI_DOCS_PYTHON} -IS ${CMAKE_SOURCE_DIR}/docs/reference/filter.py")
  configure_file(docs/reference/Doxyfile.in ${CMAKE_BINARY_DIR}/docs/Doxyfile @ONLY)
  add_custom_target(docs
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${reference_headers} ${CMAKE_BINARY_DIR}/docs/html
    COMMAND ${CMAKE_COMMAND} -E copy_directory ${CMAKE_SOURCE_DIR}/include ${reference_headers}
    COMMAND ${CMAKE_COMMAND} -E copy_directory ${CMAKE_SOURCE_DIR}/bindings/libtorch/include ${reference_headers}
    COMMAND ${DOXYGEN} ${CMAKE_BINARY_DIR}/docs/Doxyfile
    COMMAND ${CMAKE_COMMAND} -E echo "The reference is ${CMAKE_BINARY_DIR}/docs/html/index.html"
    COMMENT "Writing the API reference"
    VERBATIM)
else()
  add_custom_target(docs
    COMMAND ${CMAKE_COMMAND} -E echo
            "Doxygen was not found: install it (Debian: apt-get install doxygen) and run cmake again"
    COMMAND ${CMAKE_COMMAND} -E false
    VERBATIM)
endif()
