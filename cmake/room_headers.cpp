// Nothing: CMake wants a source for a target with precompiled headers.
