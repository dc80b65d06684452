#include "engine/dependencies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace tutti::engine {
namespace {

// How many are moved on in one round: they may be thousands.
constexpr std::size_t kHelpedAtOnce = 16;
constexpr std::size_t kListsAtOnce = 4;

}  // namespace

std::shared_ptr<Dependencies> Dependencies::of(std::span<const Work> works) {
  States open;
  for (const Work& work : works)
    if (work.state() && (!work.done() || !work.status().ok())) open.push_back(work.state());
  if (open.empty()) return nullptr;
  return std::shared_ptr<Dependencies>(new Dependencies(std::move(open)));
}

// A work keeps this alive until it is done, as this keeps the work: then both let go.
void Dependencies::watch(std::function<void()> wake) {
  wake_ = std::move(wake);
  for (const auto& work : works_)
    work->on_complete(
        [self = shared_from_this()](const Status& status) { self->note_end(status); });
}

void Dependencies::note_end(const Status& status) {
  if (!status.ok()) {
    std::scoped_lock lock(mutex_);
    if (failure_.ok()) failure_ = status;
    failed_.store(true, std::memory_order_release);
  }
  // seq_cst: of one that ends and looks for sleepers, and one that is about to sleep and looks here,
  // one sees the other.
  const bool was_last = open_.fetch_sub(1, std::memory_order_seq_cst) == 1;
  if (was_last || !status.ok()) wake_();
}

Status Dependencies::failure() const {
  std::scoped_lock lock(mutex_);
  return failure_;
}

bool Dependencies::help() {
  const std::size_t first = turn_.fetch_add(1, std::memory_order_relaxed);
  std::size_t helped = 0;
  bool moved = false;
  for (std::size_t i = 0; i < works_.size() && helped < kHelpedAtOnce; ++i) {
    Work::State& work = *works_[(first + i) % works_.size()];
    if (work.done()) continue;
    moved |= work.help();
    ++helped;
  }
  return moved;
}

Result<bool> Dependencies::put_before(void* stream) {
  for (; put_ < works_.size(); ++put_) {
    const auto waits = works_[put_]->try_wait_on(stream);
    if (!waits.ok() || !*waits) return waits;
  }
  return true;
}

std::string Dependencies::describe() const {
  std::string first;
  std::size_t more = 0;
  for (const auto& work : works_) {
    if (work->done()) continue;
    if (first.empty())
      first = work->describe();
    else
      ++more;
  }
  if (more > 0) first += fmt::format(" and {} more", more);
  return first.empty() ? "nothing any more" : first;
}

void AwaitedWorks::add(std::shared_ptr<Dependencies> works) {
  std::scoped_lock lock(lock_);
  works_.push_back(std::move(works));
  any_.store(true, std::memory_order_relaxed);
}

// A few at a time, held in an array: whoever waits must not fail for want of memory.
bool AwaitedWorks::help() {
  if (!any_.load(std::memory_order_relaxed)) return false;
  // Groups may wait for each other's works: this may be such a way round.
  if (helping_.exchange(true, std::memory_order_acquire)) return false;
  std::array<std::shared_ptr<Dependencies>, kListsAtOnce> chosen;
  {
    std::scoped_lock lock(lock_);
    std::erase_if(works_, [](const auto& each) { return each->all_done(); });
    any_.store(!works_.empty(), std::memory_order_relaxed);
    for (std::size_t i = 0; i < std::min(works_.size(), kListsAtOnce); ++i)
      chosen[i] = works_[turn_++ % works_.size()];
  }
  bool moved = false;
  for (const auto& each : chosen)
    if (each) moved |= each->help();
  helping_.store(false, std::memory_order_release);
  return moved;
}

}  // namespace tutti::engine
