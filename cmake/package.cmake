# Debian packages, one per component of cmake --install: scripts/package deb.
set(CPACK_PACKAGE_CONTACT "The maintainers of tutti")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
# What each program and library needs is asked of dpkg-shlibdeps; libtutti itself is not installed here.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")  # before 1.0 a version may change anything

get_cmake_property(CPACK_COMPONENTS_ALL COMPONENTS)

# debian_package(COMPONENT NAME DEPENDS DESCRIPTION)
function(debian_package component name depends description)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${description}" PARENT_SCOPE)
endfunction()
set(same_tutti "tutti (= ${PROJECT_VERSION})")
if(TUTTI_PYTHON)
  # An extension fits one version of Python.
  execute_process(COMMAND ${TUTTI_PYTHON} -c "if True:
    import sys
    major, minor = sys.version_info[:2]
    print(f'python3 (>= {major}.{minor}), python3 (<< {major}.{minor + 1}~)', end='')"
                  OUTPUT_VARIABLE same_python)
endif()
debian_package(tutti tutti "" "The library for C++ and C, its headers, and the command tutti.")
debian_package(libtorch tutti-libtorch "${same_tutti}"
               "The training layer for modules of libtorch, and the trainer pretrain_gpt.")
debian_package(python python3-tutti "${same_tutti}, ${same_python}, python3-numpy"
               "import tutti: collectives for numpy arrays.")
debian_package(torch python3-tutti-torch
               "${same_tutti}, ${same_python}, python3-torch, python3-tutti (= ${PROJECT_VERSION})"
               "import tutti_torch: a backend of torch.distributed, and data-parallel training.")
debian_package(peers tutti-peers "${same_tutti}"
               "What tutti bench compare runs beside tutti: programs on Open MPI, MPICH and Gloo.")
set(CPACK_DEBIAN_LIBTORCH_PACKAGE_RECOMMENDS libtorch-dev)
include(CPack)

# Everything that is installed, and nothing else.
add_custom_target(installed)
foreach(target tutti tutti_tool tutti_libtorch pretrain_gpt python_modules peer_openmpi peer_mpich peer_gloo)
  if(TARGET ${target})
    add_dependencies(installed ${target})
  endif()
endforeach()
