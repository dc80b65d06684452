# libtutti: all rooms in one shared library; only namespace tutti::v1 and the C API are visible.
add_library(tutti SHARED)
add_library(tutti::tutti ALIAS tutti)
set_target_properties(tutti PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
target_include_directories(tutti PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                                        $<INSTALL_INTERFACE:include>)
target_link_libraries(tutti PRIVATE fmt::fmt OpenSSL::Crypto PkgConfig::hwloc Threads::Threads)
target_compile_features(tutti PUBLIC cxx_std_20)
foreach(room core reduce trace topology store schedule tuner transport engine group capi)
  get_target_property(type room_${room} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    target_sources(tutti PRIVATE $<TARGET_OBJECTS:room_${room}>)
  endif()
endforeach()
