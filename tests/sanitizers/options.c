/* What the sanitizers do in every program of a build with one, whatever its environment says.
 *
 * A report ends its process, with a status that no test and no program of ours leaves with: whoever
 * waits for a rank sees that it was neither a failed assertion nor a death on purpose. */
#define OPTIONS(name) __attribute__((visibility("default"))) const char* name(void)
#define EXIT "exitcode=86"

OPTIONS(__asan_default_options);
OPTIONS(__ubsan_default_options);
OPTIONS(__tsan_default_options);

const char* __asan_default_options(void) { return EXIT ":detect_leaks=1"; }
const char* __ubsan_default_options(void) { return EXIT ":halt_on_error=1:print_stacktrace=1"; }
const char* __tsan_default_options(void) { return EXIT ":halt_on_error=1:second_deadlock_stack=1"; }
