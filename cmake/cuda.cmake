# What room cuda is built with: CUDA's headers, and kernels that nvcc compiles. Nothing is linked; the driver is
# loaded at run time. Without the toolkit the room says at run time that this build has no CUDA.
#
# CMake's own CUDA language is not used: its checks take longer than all of our kernels, and fail where there is
# no runtime library to link.
set(TUTTI_CUDA AUTO CACHE STRING "CUDA: ON, OFF, or AUTO for where the toolkit is found")
set_property(CACHE TUTTI_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TUTTI_CUDA_ARCHITECTURES 90-real 80-virtual CACHE STRING "-real: machine code; -virtual: PTX, for all newer ones")
set(cuda_least 12040)  # as CUDA_VERSION of cuda.h: has cuFuncLoad, and nvcc knows C++20

# Sets `result` to what is missing; nothing, if all is there. A build with sanitizers needs no kernels: its tests
# bring their own.
function(tutti_find_cuda result)
  find_program(TUTTI_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin PATHS /usr/local/cuda/bin)
  get_filename_component(nvcc "${TUTTI_NVCC}" REALPATH)
  get_filename_component(bin "${nvcc}" DIRECTORY)
  find_path(TUTTI_CUDA_INCLUDE_DIR cuda.h HINTS ${bin}/../include PATHS /usr/local/cuda/include)
  mark_as_advanced(TUTTI_NVCC TUTTI_CUDA_INCLUDE_DIR)
  set(missing "")
  if(NOT TUTTI_CUDA_INCLUDE_DIR)
    set(missing "cuda.h was not found (TUTTI_CUDA_INCLUDE_DIR)")
  elseif(NOT TUTTI_NVCC AND NOT TUTTI_SANITIZE)
    set(missing "nvcc was not found (TUTTI_NVCC, CUDA_HOME or PATH)")
  else()
    file(STRINGS ${TUTTI_CUDA_INCLUDE_DIR}/cuda.h version REGEX "^#define CUDA_VERSION [0-9]+")
    string(REGEX REPLACE "[^0-9]" "" version "${version}")
    if(version LESS cuda_least)
      set(missing "the CUDA toolkit has version ${version}; ${cuda_least} or newer is needed")
    endif()
  endif()
  set(${result} "${missing}" PARENT_SCOPE)
endfunction()

set(TUTTI_WITH_CUDA OFF)
if(TUTTI_CUDA)  # AUTO is true, too
  tutti_find_cuda(cuda_missing)
  if(NOT cuda_missing)
    set(TUTTI_WITH_CUDA ON)
  elseif(TUTTI_CUDA STREQUAL "AUTO")
    message(STATUS "No CUDA: ${cuda_missing}")
  else()
    message(FATAL_ERROR "TUTTI_CUDA=${TUTTI_CUDA}: ${cuda_missing}")
  endif()
endif()

# As a system's, so that its warnings are not ours.
add_library(cuda_headers INTERFACE)
if(TUTTI_WITH_CUDA)
  target_include_directories(cuda_headers SYSTEM INTERFACE ${TUTTI_CUDA_INCLUDE_DIR})
endif()

# Of room cuda, what this build leaves out.
if(TUTTI_WITH_CUDA)
  set(cuda_left_out without_cuda.cpp)
else()
  set(cuda_left_out device.cpp driver.cpp failure.cpp images.cpp launch.cpp memory.cpp streams.cpp
      update.cpp)
endif()

# Each kernels/*.cu becomes an image that images.cpp holds. It is compiled to an object, since that is all that
# ccache knows of nvcc, and the image cut out of it.
function(tutti_cuda_kernels)
  set(folder ${CMAKE_BINARY_DIR}/cuda)
  set(flags -std=c++20 -O3 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true -Xptxas=-warn-spills -Xfatbin=-compress-all
      -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include)
  foreach(architecture IN LISTS TUTTI_CUDA_ARCHITECTURES)
    string(REGEX MATCH "^[0-9]+[a-z]?" number ${architecture})
    if(architecture MATCHES "-virtual$")
      list(APPEND flags -gencode arch=compute_${number},code=compute_${number})
    else()
      list(APPEND flags -gencode arch=compute_${number},code=sm_${number})
    endif()
  endforeach()
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/kernels/*.cu)
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/kernels/*.hpp
       ${CMAKE_SOURCE_DIR}/src/cuda/kernels/*.cuh)
  set(from reduce/half.hpp reduce/storage.hpp reduce/fixed_point.hpp reduce/update_formulas.hpp)
  list(TRANSFORM from PREPEND ${CMAKE_SOURCE_DIR}/src/)
  list(APPEND headers ${from} ${CMAKE_SOURCE_DIR}/src/cuda/job.hpp
       ${CMAKE_SOURCE_DIR}/src/cuda/update_job.hpp ${CMAKE_SOURCE_DIR}/include/tutti/dtypes.def
       ${CMAKE_SOURCE_DIR}/include/tutti/dtypes.hpp ${CMAKE_SOURCE_DIR}/include/tutti/types.hpp)
  set(images)
  set(names)
  foreach(kernel IN LISTS kernels)
    get_filename_component(name ${kernel} NAME_WE)
    set(image ${folder}/${name}.fatbin)
    add_custom_command(
      OUTPUT ${image}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${TUTTI_NVCC} ${flags} -c ${kernel} -o ${folder}/${name}.o
      COMMAND ${CMAKE_OBJCOPY} -O binary --only-section=.nv_fatbin ${folder}/${name}.o ${image}
      DEPENDS ${kernel} ${headers} ${CMAKE_SOURCE_DIR}/cmake/cuda.cmake
      COMMENT "Compiling the kernels of ${name}.cu"
      VERBATIM)
    list(APPEND images ${image})
    string(APPEND names "TUTTI_IMAGE(${name})\n")
  endforeach()
  file(GENERATE OUTPUT ${folder}/kernel_images.def CONTENT ${names})
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cuda/images.cpp PROPERTIES
                              SKIP_UNITY_BUILD_INCLUSION ON COMPILE_DEFINITIONS TUTTI_KERNEL_IMAGES
                              COMPILE_OPTIONS "-Wa,-I${folder};-I${CMAKE_BINARY_DIR}" OBJECT_DEPENDS "${images}")
endfunction()
if(TUTTI_WITH_CUDA AND NOT TUTTI_SANITIZE)
  tutti_cuda_kernels()
endif()
