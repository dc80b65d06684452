# The Python modules, where Python's headers and pybind11 are found. TUTTI_PYTHON says for which
# Python: extensions fit one version only. The default is the first of Debian's and the one on PATH
# that has torch, or the first at all.
if(NOT TUTTI_PYTHON)
  set(chosen)
  find_program(path_python python3)
  foreach(candidate /usr/bin/python3 ${path_python})
    if(NOT EXISTS ${candidate})
      continue()
    endif()
    execute_process(COMMAND ${candidate} -c "import torch" RESULT_VARIABLE result
                    OUTPUT_QUIET ERROR_QUIET)
    if(result EQUAL 0 OR NOT chosen)
      set(chosen ${candidate})
    endif()
    if(result EQUAL 0)
      break()
    endif()
  endforeach()
  set(TUTTI_PYTHON ${chosen} CACHE FILEPATH "The Python that the modules are for" FORCE)
endif()
add_custom_target(python_modules)  # all of them

# Where that Python looks below a prefix: lib/python3.11/site-packages, or Debian's dist-packages.
execute_process(COMMAND ${TUTTI_PYTHON} -c "if True:
    import os, sysconfig
    folder = os.path.basename(sysconfig.get_path('platlib'))
    print(f'lib/python{sysconfig.get_python_version()}/{folder}', end='')"
                OUTPUT_VARIABLE python_dir)
set(TUTTI_PYTHON_INSTALL_DIR ${python_dir} CACHE STRING "Where the modules go, below the prefix")
file(RELATIVE_PATH python_to_lib /${TUTTI_PYTHON_INSTALL_DIR}/package /${CMAKE_INSTALL_LIBDIR})

# install_python_package(PACKAGE TARGET COMPONENT): the package's Python files and its extension.
function(install_python_package package target component)
  install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/${package} DESTINATION ${TUTTI_PYTHON_INSTALL_DIR}
          COMPONENT ${component} PATTERN __pycache__ EXCLUDE)
  install(TARGETS ${target} LIBRARY DESTINATION ${TUTTI_PYTHON_INSTALL_DIR}/${package} COMPONENT ${component})
endfunction()

# Where its torch is; nothing where it has none.
execute_process(COMMAND ${TUTTI_PYTHON} ${CMAKE_SOURCE_DIR}/bindings/torch/find_torch.py
                OUTPUT_VARIABLE torch_found ERROR_VARIABLE torch_missing
                RESULT_VARIABLE torch_result ERROR_STRIP_TRAILING_WHITESPACE)
if(torch_result EQUAL 0)
  file(WRITE ${CMAKE_BINARY_DIR}/torch_python.cmake "${torch_found}")
  include(${CMAKE_BINARY_DIR}/torch_python.cmake)
endif()

set(Python_EXECUTABLE ${TUTTI_PYTHON})
find_package(Python 3.8 QUIET COMPONENTS Interpreter Development.Module)
if(Python_FOUND)
  set(PYBIND11_FINDPYTHON ON)
  find_package(pybind11 2.6 QUIET)
  # torch from elsewhere than Debian brings pybind11's headers, without its CMake files.
  if(NOT pybind11_FOUND AND TORCH_PYTHON_PYBIND11)
    set(pybind11_FOUND TRUE)
    function(pybind11_add_module name)
      list(REMOVE_ITEM ARGN MODULE NO_EXTRAS)
      Python_add_library(${name} MODULE WITH_SOABI ${ARGN})
      target_include_directories(${name} SYSTEM PRIVATE ${TORCH_PYTHON_PYBIND11})
    endfunction()
  endif()
endif()
if(pybind11_FOUND)
  add_subdirectory(bindings/python)
else()
  message(STATUS "pybind11 or Python's headers were not found (Debian: pybind11-dev, python3-dev): "
                 "no Python modules")
endif()
if(pybind11_FOUND AND torch_result EQUAL 0)
  add_subdirectory(bindings/torch)
else()
  message(STATUS "tutti_torch is left out: ${torch_missing}")
endif()
