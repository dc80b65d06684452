# What transport/ofi is built with: libfabric's headers. Nothing is linked: the library is loaded at run time, so
# that one package of libtutti works with and without it. Without the headers the transport says at run time that
# this build has no libfabric.
set(TUTTI_OFI AUTO CACHE STRING "libfabric: ON, OFF, or AUTO for where its headers are found")
set_property(CACHE TUTTI_OFI PROPERTY STRINGS AUTO ON OFF)
set(ofi_least 1.14)

# Sets `result` to what is missing; nothing, if all is there.
function(tutti_find_libfabric result)
  find_path(TUTTI_OFI_INCLUDE_DIR rdma/fabric.h)
  mark_as_advanced(TUTTI_OFI_INCLUDE_DIR)
  set(missing "")
  if(NOT TUTTI_OFI_INCLUDE_DIR)
    set(missing "rdma/fabric.h was not found (Debian: libfabric-dev; TUTTI_OFI_INCLUDE_DIR)")
  else()
    file(STRINGS ${TUTTI_OFI_INCLUDE_DIR}/rdma/fabric.h version REGEX "^#define FI_(MAJOR|MINOR)_VERSION ")
    string(REGEX REPLACE "[^0-9;]" "" version "${version}")
    list(JOIN version . version)
    if(version VERSION_LESS ofi_least)
      set(missing "libfabric has version ${version}; ${ofi_least} or newer is needed")
    endif()
  endif()
  set(${result} "${missing}" PARENT_SCOPE)
endfunction()

set(TUTTI_WITH_OFI OFF)
if(TUTTI_OFI)  # AUTO is true, too
  tutti_find_libfabric(ofi_missing)
  if(NOT ofi_missing)
    set(TUTTI_WITH_OFI ON)
  elseif(TUTTI_OFI STREQUAL "AUTO")
    message(STATUS "No libfabric: ${ofi_missing}")
  else()
    message(FATAL_ERROR "TUTTI_OFI=${TUTTI_OFI}: ${ofi_missing}")
  endif()
endif()

# As a system's, so that its warnings are not ours.
add_library(libfabric_headers INTERFACE)
if(TUTTI_WITH_OFI)
  target_include_directories(libfabric_headers SYSTEM INTERFACE ${TUTTI_OFI_INCLUDE_DIR})
endif()

# Of room transport, what this build leaves out.
if(TUTTI_WITH_OFI)
  set(ofi_left_out ofi/without_libfabric.cpp)
else()
  file(GLOB ofi_left_out RELATIVE ${CMAKE_SOURCE_DIR}/src/transport CONFIGURE_DEPENDS
       ${CMAKE_SOURCE_DIR}/src/transport/ofi/*.cpp)
  list(REMOVE_ITEM ofi_left_out ofi/without_libfabric.cpp)
endif()
