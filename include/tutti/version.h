/* tutti/version.h - the version, here and nowhere else: CMake and the Python packages read it from this
 * file. For C and C++. tutti_version() in tutti.h tells the version of the library that runs. */
#ifndef TUTTI_VERSION_H
#define TUTTI_VERSION_H

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0

/* The three as text, with dots between. */
#define TUTTI_VERSION \
  TUTTI_VERSION_OF(TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH)
#define TUTTI_VERSION_OF(major, minor, patch) TUTTI_VERSION_TEXT(major, minor, patch)
#define TUTTI_VERSION_TEXT(major, minor, patch) #major "." #minor "." #patch

#endif
