# The Python modules, where Python's headers and pybind11 are found. TUTTI_PYTHON says for which
# Python: extensions fit one version only.
set(python_default python3)
if(EXISTS /usr/bin/python3)
  set(python_default /usr/bin/python3)
endif()
set(TUTTI_PYTHON ${python_default} CACHE FILEPATH "The Python that the modules are for")
add_custom_target(python_modules)  # all of them

set(Python_EXECUTABLE ${TUTTI_PYTHON})
find_package(Python 3.8 QUIET COMPONENTS Interpreter Development.Module)
if(Python_FOUND)
  set(PYBIND11_FINDPYTHON ON)
  find_package(pybind11 2.6 QUIET)
endif()
if(pybind11_FOUND)
  add_subdirectory(bindings/python)
else()
  message(STATUS "pybind11 or Python's headers were not found (Debian: pybind11-dev, python3-dev): "
                 "no Python modules")
endif()
