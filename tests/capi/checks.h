/* What the parts of the C program share: they count what went wrong instead of stopping at it. */
#ifndef TUTTI_TESTS_CAPI_CHECKS_H
#define TUTTI_TESTS_CAPI_CHECKS_H

#include <stdio.h>

#include "tutti/tutti.h"

extern int failures;

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: %s is not so\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                               \
    }                                                                           \
  } while (0)

/* `call` must have the outcome `expected`; its status is freed. */
#define CHECK_CODE(call, expected) check_code((call), (expected), __FILE__, __LINE__)
#define CHECK_OK(call) CHECK_CODE(call, TUTTI_OK)
/* Waits for the work that `call` started, frees it, and expects it ok. */
#define CHECK_WORK(call) check_work((call), __FILE__, __LINE__)

void check_code(tutti_status* status, tutti_code expected, const char* file, int line);
void check_work(tutti_work* work, const char* file, int line);

void check_vocabulary(void);
void check_mistakes(tutti_group* group);
void check_store(void);
void check_file_store(void);
void check_recovery(void);
void check_meeting(tutti_group* group);
void check_groups(tutti_group* group);
void check_collectives(tutti_group* group);
void check_async_collectives(tutti_group* group);
void check_uneven_collectives(tutti_group* group);
void check_async_uneven_collectives(tutti_group* group);
void check_calls(tutti_group* group);
void check_transfers(tutti_group* group);
void check_older_programs(tutti_group* group);
void check_works(tutti_group* group);
void check_memory(tutti_group* group);
void check_pool(tutti_group* group);
void check_late_rank(tutti_group* group);
void check_abort(tutti_group* group);
void check_devices(tutti_group* group);

#endif
