// A barrier that says who did not come. Everybody signs in in the store; rank 0 waits for all, and
// leaves a verdict that every rank reads, those that come late too.
#include <algorithm>

#include "backend.hpp"
#include "errors.hpp"

namespace tutti_torch {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

milliseconds left_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  return std::max(left, milliseconds(1));
}

std::string sentence(const std::vector<int>& missing, milliseconds timeout) {
  std::string names;
  for (int rank : missing) names += (names.empty() ? "" : ", ") + std::to_string(rank);
  return (missing.size() == 1 ? "Rank " : "Ranks ") + names +
         " failed to pass monitoredBarrier in " + std::to_string(timeout.count()) + " ms";
}

}  // namespace

void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  // Unset is negative; zero is asked for, and has passed already.
  const milliseconds timeout =
      options.timeout.count() >= 0 ? options.timeout : std::max(timeout_.load(), milliseconds(1));
  const auto deadline = Clock::now() + timeout;
  const std::string round = "tutti/monitored_barrier/" + std::to_string(++monitored_barriers_);
  const auto name_of = [&](int rank) { return round + "/" + std::to_string(rank); };
  const std::string verdict_key = round + "/verdict";
  const auto failure = [&](const std::string& message, int peer) {
    return Failure(tutti::Status(tutti::Code::timed_out,
                                 "[Rank " + std::to_string(getRank()) + "]: " + message,
                                 {getRank(), peer, 0}));
  };
  check(store_->set(name_of(getRank()), "here"));
  if (getRank() != 0) {
    // Rank 0 may use the whole timeout, and then still has to write the verdict.
    auto verdict = store_->get(verdict_key, left_until(deadline) + milliseconds(5000));
    if (!verdict.ok() && verdict.status().code() == tutti::Code::timed_out)
      throw failure(sentence({0}, timeout), 0);
    check(verdict.status());
    if (*verdict != "all came")
      throw failure("Rank " + std::to_string(getRank()) +
                        " successfully reached monitoredBarrier, but received errors while waiting "
                        "for send/recv from rank 0: " +
                        *verdict,
                    -1);
    return;
  }
  if (timeout.count() == 0) {
    const std::string verdict = "Rank 0 timed out in monitoredBarrier after 0 ms";
    check(store_->set(verdict_key, verdict));
    throw failure(verdict, 0);
  }
  std::vector<int> missing;
  for (int rank = 1; rank < getSize(); ++rank) {
    tutti::Status came = store_->wait(name_of(rank), left_until(deadline));
    if (came.ok()) continue;
    if (came.code() != tutti::Code::timed_out) throw Failure(came);
    missing.push_back(rank);
    if (!wait_all_ranks) break;
  }
  const std::string verdict = missing.empty() ? "all came" : sentence(missing, timeout);
  check(store_->set(verdict_key, verdict));
  if (!missing.empty()) throw failure(verdict, missing.front());
}

}  // namespace tutti_torch
