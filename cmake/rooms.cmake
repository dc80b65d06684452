# Much of a file's compile time would go into the standard library and fmt, under a sanitizer more than half: they
# are read once. That every file includes what it uses is a test's to prove (every_file_compiles_alone).
add_library(room_headers OBJECT ${CMAKE_SOURCE_DIR}/cmake/room_headers.cpp)
target_link_libraries(room_headers PRIVATE fmt::fmt Threads::Threads)
target_precompile_headers(room_headers PRIVATE ${CMAKE_SOURCE_DIR}/cmake/room_headers.hpp)

# Each room of src/ is a library of its own that links only the rooms it may include (docs/map.md). WITHOUT names
# sources that this build does without.
function(tutti_room name)
  cmake_parse_arguments(ROOM "" "" "ROOMS;LIBS;WITHOUT" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  list(TRANSFORM ROOM_WITHOUT PREPEND ${CMAKE_SOURCE_DIR}/src/${name}/)
  list(REMOVE_ITEM sources ${ROOM_WITHOUT})
  list(TRANSFORM ROOM_ROOMS PREPEND room_)
  if(sources)
    add_library(room_${name} STATIC ${sources})
    target_include_directories(room_${name} PUBLIC ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(room_${name} PUBLIC ${ROOM_ROOMS} ${ROOM_LIBS} fmt::fmt Threads::Threads)
    target_precompile_headers(room_${name} REUSE_FROM room_headers)
  else()
    add_library(room_${name} INTERFACE)
    target_link_libraries(room_${name} INTERFACE ${ROOM_ROOMS} ${ROOM_LIBS})
  endif()
endfunction()

tutti_room(core LIBS OpenSSL::SSL OpenSSL::Crypto rapidjson)
tutti_room(reduce ROOMS core)
tutti_room(cuda ROOMS core reduce LIBS cuda_headers ${CMAKE_DL_LIBS} WITHOUT ${cuda_left_out})
tutti_room(trace ROOMS core)
tutti_room(topology ROOMS core LIBS PkgConfig::hwloc)
tutti_room(store ROOMS core)
tutti_room(schedule ROOMS core topology)
tutti_room(cost ROOMS core topology schedule)
tutti_room(tuner ROOMS core topology schedule cost)
tutti_room(pipeline ROOMS core)
tutti_room(plan ROOMS core topology schedule cost tuner pipeline)
tutti_room(transport ROOMS core reduce trace LIBS libfabric_headers ${CMAKE_DL_LIBS} WITHOUT ${ofi_left_out})
tutti_room(engine ROOMS core reduce cuda trace schedule transport)
tutti_room(group ROOMS engine tuner store)
tutti_room(mesh ROOMS group)
tutti_room(train ROOMS group)
tutti_room(checkpoint ROOMS train)
tutti_room(hand_over ROOMS group)
tutti_room(pipeline_run ROOMS pipeline train)
tutti_room(exchange ROOMS group)
tutti_room(capi ROOMS group)

# The folds and the optimizer's kernels are compiled once more for wider vectors and dispatched at run
# time, each from the same header.
foreach(room reduce train)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/${room}/kernels_plain.cpp PROPERTIES
                              SKIP_UNITY_BUILD_INCLUSION ON)
endforeach()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT TUTTI_SANITIZE MATCHES fuzzer)  # they parse nothing
  foreach(room reduce train)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/${room}/kernels_avx2.cpp PROPERTIES
                                SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "-mavx2;-mf16c")
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/${room}/kernels_avx512.cpp PROPERTIES
                                SKIP_PRECOMPILE_HEADERS ON
                                COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mf16c")
  endforeach()
endif()
