#include "simulation/fibers.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "core/check.hpp"

namespace tutti::simulation {
namespace {

constexpr std::size_t kStackBytes = 256 * 1024;  // of which only what is used is memory

}  // namespace

Fibers::~Fibers() {
  for (const auto& fiber : fibers_) ::munmap(fiber->stack, kStackBytes);
}

void Fibers::enter(unsigned high, unsigned low) {
  auto* fibers = reinterpret_cast<Fibers*>(std::uintptr_t{high} << 32 | low);
  Fiber& self = *fibers->fibers_[fibers->current_];
  self.body();
  self.over = true;
  ::swapcontext(&self.context, &fibers->main_);
}

Fibers::Id Fibers::start(std::function<void()> body) {
  const Id id = fibers_.size();
  Fiber& made = *fibers_.emplace_back(std::make_unique<Fiber>());
  made.body = std::move(body);
  made.stack = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TUTTI_CHECK(made.stack != MAP_FAILED);
  ::getcontext(&made.context);
  made.context.uc_stack.ss_sp = made.stack;
  made.context.uc_stack.ss_size = kStackBytes;
  made.context.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  ::makecontext(&made.context, reinterpret_cast<void (*)()>(&Fibers::enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  at(clock_.now(), [this, id] { resume(id); });
  return id;
}

void Fibers::at(Nanoseconds when, std::function<void()> event) {
  events_.push({when, ++events_made_, std::move(event)});
}

void Fibers::wait() { ::swapcontext(&fibers_[current_]->context, &main_); }

void Fibers::resume(Id fiber) {
  current_ = fiber;
  ::swapcontext(&main_, &fibers_[fiber]->context);
}

bool Fibers::run() {
  while (!events_.empty()) {
    const auto body = std::move(const_cast<Event&>(events_.top()).body);
    clock_.advance_to(events_.top().when);
    events_.pop();
    body();
  }
  return std::all_of(fibers_.begin(), fibers_.end(), [](const auto& each) { return each->over; });
}

}  // namespace tutti::simulation
