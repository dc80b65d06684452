// programs/strike.hpp - what goes wrong in a rank, and the note of when it did.
//
//   kill, segv, exit     it ends so
//   stop                 it stops itself; somebody else may wake it
//   compute, sleep       it does so for some seconds, without a call of tutti, and goes on
//   memory               it takes memory until somebody ends it
//   fork                 it leaves a child in a session of its own, then ends by SIGKILL
#pragma once

#include <string>

namespace tutti::test {

// Seconds of the clock that all processes of the machine share.
double now_s();

// Appends {"fault": now, "rank": …, "where": …} to the file $FAULT_NOTE; then does it.
void strike(const std::string& how, int rank, const std::string& where, double seconds);

}  // namespace tutti::test
