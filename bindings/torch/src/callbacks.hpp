// callbacks.hpp - threads in which torch's futures are completed, and how deep a thread is in chains.
//
// Not the thread that completed the operation: what was chained in C++ or through torch's own futures
// (collect_all) runs where the future is completed and may wait for another operation, and the
// progress thread must be free to drive that one. What Python chains to an operation's future runs in
// threads of its own (tutti_torch/_futures.py).
#pragma once

#include <functional>

namespace tutti_torch {

// Runs `callback` soon, whether or not those before it have returned.
void run_callback(std::function<void()> callback);

// For the end of the interpreter: waits a moment for callbacks that run, and forgets all later ones,
// which would find no interpreter any more.
void end_callbacks();

// 0 in the user's own threads, d in a thread that runs functions chained at depth d - 1. It says on
// which of a backend's groups a collective is started (levels.hpp).
int chain_depth();
void set_chain_depth(int depth);

}  // namespace tutti_torch
