// callbacks.hpp - threads in which futures are completed, and with them whatever users chained.
//
// Not the thread that completed the operation: a chained function may wait for another operation
// (torch's PowerSGD hook does), and the progress thread must be free to drive that one.
#pragma once

#include <functional>

namespace tutti_torch {

// Runs `callback` when those before it have returned, or the last of them has not for 100 ms.
void run_callback(std::function<void()> callback);

// For the end of the interpreter: waits a moment for callbacks that run, and forgets all later ones,
// which would find no interpreter any more.
void end_callbacks();

}  // namespace tutti_torch
