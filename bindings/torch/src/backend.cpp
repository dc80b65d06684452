#include "backend.hpp"

#include <ATen/record_function.h>

#include <cstdlib>
#include <functional>
#include <mutex>
#include <set>

#include "callbacks.hpp"
#include "errors.hpp"
#include "gil.hpp"
#include "gpu_use.hpp"
#include "store.hpp"
#include "stream_work.hpp"
#include "streams.hpp"

namespace tutti_torch {
namespace {

using tutti::Transfer;

// The backends that have not been destroyed. Never destroyed itself: they may outlive main.
struct Living {
  std::mutex mutex;
  std::set<Backend*> backends;
};

Living& living() {
  static Living* const all = new Living;
  return *all;
}

// What a profiler calls the operation; null where none listens.
const char* event_of(const char* text, const char* event) {
  if (!at::hasCallbacks()) return nullptr;
  return event != nullptr ? event : text;
}

tutti::GroupOptions options_for(std::chrono::milliseconds timeout, const std::string& name) {
  tutti::Config config = take(tutti::Config::from_environment());
  if (timeout.count() > 0) {
    config.timeout = timeout;
    if (std::getenv("TUTTI_JOIN_TIMEOUT") == nullptr) config.join_timeout = timeout;
  }
  tutti::GroupOptions options;
  options.name = name;
  options.config = std::move(config);
  return options;
}

}  // namespace

c10::intrusive_ptr<Backend> Backend::create(c10::intrusive_ptr<c10d::Store> store, int rank,
                                            int size, Milliseconds timeout,
                                            const std::string& name) {
  auto meeting = adapt(std::move(store));
  tutti::GroupOptions options = options_for(timeout, name);
  options.rank = rank;
  options.size = size;
  auto group = take(tutti::Group::create(meeting, std::move(options)));
  return c10::make_intrusive<Backend>(std::move(meeting), std::move(group), timeout);
}

c10::intrusive_ptr<Backend> Backend::create_within(Backend& world,
                                                   c10::intrusive_ptr<c10d::Store> store,
                                                   const std::vector<int>& ranks,
                                                   Milliseconds timeout, const std::string& name) {
  // All ranks make groups in one order, as torch asks; the tag keeps apart those that threads make at
  // the same time.
  const auto tag = static_cast<std::uint32_t>(std::hash<std::string>()(name));
  auto group =
      take(world.group()->subgroup(ranks, tag, {name}, std::max(timeout, Milliseconds(0))));
  return c10::make_intrusive<Backend>(adapt(std::move(store)), std::move(group), timeout);
}

c10::intrusive_ptr<Backend> Backend::shrink(Milliseconds timeout) {
  auto smaller = take(group()->shrink("", std::max(timeout, Milliseconds(0))));
  return c10::make_intrusive<Backend>(store_, std::move(smaller), timeout_);
}

c10::intrusive_ptr<Backend> Backend::grow(c10::intrusive_ptr<c10d::Store> store, int most) {
  auto meeting = adapt(std::move(store));
  const auto own = group();
  auto larger = take(own->grow(meeting, most, options_for(timeout_, own->name())));
  if (!larger) return {};
  return c10::make_intrusive<Backend>(std::move(meeting), std::move(larger), timeout_);
}

c10::intrusive_ptr<Backend> Backend::join(c10::intrusive_ptr<c10d::Store> store,
                                          Milliseconds timeout, const std::string& name) {
  auto meeting = adapt(std::move(store));
  auto group = take(tutti::Group::join(meeting, options_for(timeout, name)));
  return c10::make_intrusive<Backend>(std::move(meeting), std::move(group), timeout);
}

Backend::Backend(std::shared_ptr<tutti::Store> store, std::shared_ptr<tutti::Group> group,
                 Milliseconds timeout)
    : BackendBase(group->rank(), group->size()),
      store_(std::move(store)),
      levels_(std::move(group)),
      timeout_(timeout) {
  init();
  std::scoped_lock lock(living().mutex);
  living().backends.insert(this);
}

Backend::~Backend() {
  without_gil([this] {
    {
      std::scoped_lock lock(living().mutex);
      living().backends.erase(this);
    }
    coalesced_ = {};
    levels_.close();
    store_.reset();
  });
}

void Backend::leave_all() {
  std::scoped_lock lock(living().mutex);
  for (Backend* backend : living().backends) backend->levels_.close();
}

std::shared_ptr<tutti::Group> Backend::group() {
  auto group = levels_.group();
  if (!group) throw Failure(tutti::Status(tutti::Code::aborted, "the process group was shut down"));
  return group;
}

void Backend::abort() {
  without_gil([this] { levels_.abort("torch aborted the process group"); });
}

void Backend::shutdown() {
  without_gil([this] { levels_.close(); });
}

// ---- starting

std::chrono::nanoseconds Backend::timeout_of(Milliseconds asked) const {
  if (asked.count() > 0) return asked;
  return std::max(timeout_.load(), Milliseconds(0));
}

void Backend::check_root(const char* operation, int64_t root) const {
  if (root < 0 || root >= getSize())
    refuse(operation, "invalid root rank: " + std::to_string(root) + " in a group of " +
                          std::to_string(getSize()));
}

tutti::Work Backend::start(tutti::Call& call, const Terms& terms, const Loan& loan) {
  call.options.timeout = timeout_of(terms.timeout);
  if (loan.stream) call.options.stream = handle_of(*loan.stream);
  const bool in_stream = loan.stream && terms.blocks && !coalescing_;
  tutti::Work work = levels_.with_group(chain_depth(), [&](tutti::Group& group) {
    if (loan.stream) note_use(group, loan.stream->device());
    // A call that blocks is one that its stream waits for: then it runs there.
    return in_stream ? tutti::Work::finished(group.run(call)) : group.start(call);
  });
  // Nothing was started: the caller learns it here, not from the Work. (unsupported: what cannot be captured
  // in a graph must not be missing from it.)
  if (work.done())
    if (tutti::Status status = work.status();
        status.code() == tutti::Code::invalid_argument ||
        (loan.stream && status.code() == tutti::Code::unsupported))
      throw Failure(status);
  sequence_.fetch_add(1, std::memory_order_relaxed);
  if (loan.stream) {
    std::scoped_lock lock(gpu_mutex_);
    if (in_stream)
      last_stream_ = loan.stream;
    else
      last_on_gpu_ = work;
  }
  return work;
}

WorkHandle Backend::launch(const Title& title, tutti::Call& call, const Terms& terms, Loan loan,
                           Tensors outputs) {
  tutti::Work operation = start(call, terms, loan);
  return hand_out(title, std::move(operation), std::move(loan), std::move(outputs));
}

WorkHandle Backend::hand_out(const Title& title, Operations operations, Loan loan,
                             Tensors outputs) {
  if (!coalescing_)
    return make_work(title, std::move(operations), std::move(loan), std::move(outputs));
  coalesced_.operations.add(operations);
  coalesced_.outputs.insert(coalesced_.outputs.end(), outputs.begin(), outputs.end());
  if (loan.stream) coalesced_.stream = loan.stream;
  return coalesced_.parts.emplace_back(
      make_work(title, std::move(operations), std::move(loan), std::move(outputs)));
}

WorkHandle Backend::make_work(const Title& title, Operations operations, Loan loan,
                              Tensors outputs) {
  const char* event = event_of(title.text, title.event);
  // A message comes when it comes: nothing else may be behind it, in a strand or in a stream.
  const bool is_message = c10d::isP2POp(title.type);
  if (loan.stream) {
    const std::optional<c10::Stream> side =
        is_message ? std::nullopt : std::optional(side_stream(loan.stream->device()));
    return c10::make_intrusive<StreamWork>(getRank(), title.type, event, std::move(operations),
                                           std::move(loan), std::move(outputs), side);
  }
  auto work = c10::make_intrusive<Work>(getRank(), title.type, event, std::move(operations),
                                        std::move(loan), std::move(outputs));
  work->set_strand(is_message ? new_strand() : strand_);
  return work;
}

// ---- on the GPU

// Taken once, as NCCL's backend does: collectives end in their order, so that one stream can wait for all.
c10::Stream Backend::side_stream(c10::Device gpu) {
  std::scoped_lock lock(gpu_mutex_);
  if (!side_stream_ || side_stream_->device() != gpu) side_stream_ = pooled_stream(gpu);
  return *side_stream_;
}

void Backend::finish_gpu() {
  const std::optional<c10::Device> gpu = gpu_in_use();
  if (!gpu) return;
  finish(current_stream(*gpu));
  tutti::Work last;
  std::optional<c10::Stream> stream;
  {
    std::scoped_lock lock(gpu_mutex_);
    last = std::exchange(last_on_gpu_, {});
    stream = std::exchange(last_stream_, std::nullopt);
  }
  if (stream) finish(*stream);
  check(last.wait());
}

// ---- coalescing: operations start at once, and are waited for together

void Backend::startCoalescing() {
  coalescing_ = true;
  coalesced_ = {};
}

#if TUTTI_TORCH_AT_LEAST(2, 0)
WorkHandle Backend::endCoalescing() {
  coalescing_ = false;
  Coalesced all = std::exchange(coalesced_, {});
  if (all.stream)
    return c10::make_intrusive<StreamWork>(getRank(), std::move(all.parts),
                                           std::move(all.operations), std::move(all.outputs),
                                           *all.stream);
  auto work = c10::make_intrusive<Work>(getRank(), std::move(all.parts), std::move(all.operations),
                                        std::move(all.outputs));
  work->set_strand(strand_);
  return work;
}
#else
// 1.13 hands out the Work of each operation already.
void Backend::endCoalescing(std::vector<WorkHandle>&) {
  coalescing_ = false;
  coalesced_ = {};
}
#endif

// ---- point to point

WorkHandle Backend::transfer(const Title& title, Transfer::Kind kind, const Tensors& tensors,
                             int peer, int tag) {
  const at::Tensor& tensor = check_single(title.name(), tensors);
  if (tag < 0)
    refuse(title.name(), "invalid tag " + std::to_string(tag) + ": tags are not negative");
  if (peer != tutti::kAnySource && (peer < 0 || peer >= getSize()))
    refuse(title.name(),
           "invalid rank " + std::to_string(peer) + " in a group of " + std::to_string(getSize()));
  Loan loan;
  const bool sends = kind == Transfer::Kind::send;
  const Transfer part{kind, lend(loan, tensor, sends ? Use::input : Use::output), peer,
                      static_cast<std::uint32_t>(tag)};
  tutti::CallOptions options;
  options.timeout = timeout_of(Milliseconds(0));
  if (loan.stream) options.stream = handle_of(*loan.stream);
  // Messages find each other by tag, wherever they were started.
  tutti::Work operation = levels_.with_group(0, [&](tutti::Group& group) {
    if (loan.stream) note_use(group, loan.stream->device());
    return group.transfer({&part, 1}, options);
  });
  // On a GPU the tensor that was sent stands for the end of the sending: a future is ordered by its tensors.
  Tensors outputs = sends && !loan.stream ? Tensors() : tensors;
  return hand_out(title, std::move(operation), std::move(loan), std::move(outputs));
}

WorkHandle Backend::send(Tensors& tensors, int peer, int tag) {
  return transfer({c10d::OpType::SEND, "tutti:send"}, Transfer::Kind::send, tensors, peer, tag);
}

WorkHandle Backend::recv(Tensors& tensors, int peer, int tag) {
  return transfer({c10d::OpType::RECV, "tutti:recv"}, Transfer::Kind::recv, tensors, peer, tag);
}

WorkHandle Backend::recvAnysource(Tensors& tensors, int tag) {
  return transfer({c10d::OpType::RECVANYSOURCE, "tutti:recv_any_source", "tutti:recvAnySource"},
                  Transfer::Kind::recv, tensors, tutti::kAnySource, tag);
}

}  // namespace tutti_torch
