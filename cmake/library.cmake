# libtutti: all rooms in one shared library; only namespace tutti::v1 and the C API are visible.
# What is installed, and how an outside project finds it, stands here too.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME tutti)  # others: libtorch, python, torch, peers (package.cmake)

add_library(tutti SHARED)
add_library(tutti::tutti ALIAS tutti)
set_target_properties(tutti PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
target_include_directories(tutti PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                                        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(tutti PRIVATE fmt::fmt OpenSSL::SSL OpenSSL::Crypto PkgConfig::hwloc Threads::Threads
                                    ${CMAKE_DL_LIBS})
target_compile_features(tutti PUBLIC cxx_std_20)
foreach(room core reduce cuda trace topology store schedule cost tuner pipeline plan transport engine group mesh train
             checkpoint hand_over pipeline_run exchange capi)
  get_target_property(type room_${room} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    target_sources(tutti PRIVATE $<TARGET_OBJECTS:room_${room}>)
  endif()
endforeach()

# An installed program finds the library beside itself, wherever the tree is put.
set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")

install(TARGETS tutti EXPORT tutti-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
install(EXPORT tutti-targets NAMESPACE tutti:: DESTINATION ${package_dir})
configure_package_config_file(cmake/tutti-config.cmake.in ${CMAKE_BINARY_DIR}/tutti-config.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change anything.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tutti-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/tutti-config.cmake ${CMAKE_BINARY_DIR}/tutti-config-version.cmake
        DESTINATION ${package_dir})

# The pkg-config file finds the tree from where it lies itself.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pkgconfig_to_prefix /prefix/${pkgconfig_dir} /prefix)
configure_file(cmake/tutti.pc.in ${CMAKE_BINARY_DIR}/tutti.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tutti.pc DESTINATION ${pkgconfig_dir})
