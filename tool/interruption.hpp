// tool/interruption.hpp - Ctrl-C as something to look at, for commands that keep what they have.
//
//   catch_interruptions();
//   for (…; interruption() == 0;) measure_a_little();
//   keep(results);
//   return interruption() != 0 ? 128 + interruption() : kDone;
#pragma once

namespace tutti::tool {

// From now on SIGINT, SIGTERM and SIGHUP are noted and no longer end this process, which has to
// look and to end within two seconds. Programs that it starts are ended by them as ever.
void catch_interruptions();
// The first that came; 0 when none has.
int interruption();
// One that somebody else took: a job that ended with 128 + one of these signals. Other codes say
// nothing.
void note_interruption(int exit_code);

}  // namespace tutti::tool
