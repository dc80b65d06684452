// Ranks that share a host, all in one thread: no engine, no clock. Each runs a list of collectives, one
// after the other, as fast as it is stepped; who is stepped next is drawn by lot.
#pragma once

#include <unistd.h>

#include <memory>
#include <random>
#include <vector>

#include "engine/host_run.hpp"
#include "schedule/catalog.hpp"

namespace tutti::engine::testing {

// One collective on 64-bit integers, the same for all ranks.
struct Task {
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::direct;
  int shots = 2;
  int root = 0;
  bool in_place = false;
  bool symmetric = false;  // both sides in memory that the others have mapped
  bool mixed = false;      //   but for rank 0
  bool scattered = false;  // the message in several pieces
  bool apart = false;      // each rank's memory begins elsewhere
  std::size_t count = 1;   // elements of the message, or of a block
};

inline std::int64_t element(std::size_t task, int rank, std::size_t i) {
  return static_cast<std::int64_t>(task * 1'000'003 + static_cast<std::size_t>(rank) * 10'007 +
                                   i * 31 % 5'003);
}

// One rank's memory for one task, and what is to be in it.
class Sides {
 public:
  Sides(const Task& task, std::size_t index, int rank, int size, std::int64_t* memory)
      : task_(task), index_(index), rank_(rank), size_(size) {
    const std::size_t n = static_cast<std::size_t>(size);
    const bool at_root = rank == task.root;
    const auto blocks = [&](Collective a, Collective b, Collective c) {
      return task.collective == a || task.collective == b || task.collective == c;
    };
    in_blocks_ = blocks(Collective::scatter, Collective::reduce_scatter, Collective::all_to_all);
    out_blocks_ = blocks(Collective::gather, Collective::all_gather, Collective::all_to_all);
    const std::size_t in = in_blocks_ ? n * task.count : task.count;
    const std::size_t out = out_blocks_ ? n * task.count : task.count;
    const Collective c = task.collective;
    has_input_ = c != Collective::broadcast && c != Collective::barrier &&
                 (c != Collective::scatter || at_root);
    has_output_ = c != Collective::barrier &&
                  ((c != Collective::reduce && c != Collective::gather) || at_root);
    if (c == Collective::barrier) return;
    const auto self = static_cast<std::size_t>(rank);
    input_ = memory;
    output_ = memory + (task.in_place ? 0 : in);
    if (task.in_place && in_blocks_ && !out_blocks_) output_ = input_ + self * task.count;
    if (task.in_place && out_blocks_ && !in_blocks_) input_ = output_ + self * task.count;
    in_count_ = in;
    out_count_ = out;
    if (has_output_) std::fill(output_, output_ + out, -1);
    std::int64_t* source = c == Collective::broadcast ? output_ : input_;
    const std::size_t filled = c == Collective::broadcast ? out : in;
    if (has_input_ || c == Collective::broadcast)
      for (std::size_t i = 0; i < filled; ++i) source[i] = element(index, rank, i);
  }

  Launch launch() const {
    Launch made;
    made.collective = task_.collective;
    made.algorithm = task_.algorithm;
    made.shots = task_.shots;
    made.root = task_.root;
    made.in_place = task_.in_place || task_.collective == Collective::broadcast;
    made.dtype = Dtype::i64;
    if (has_input_) made.input = pieces(input_, in_count_, in_blocks_);
    if (has_output_) made.output = pieces(output_, out_count_, out_blocks_);
    made.fingerprint.collective = task_.collective;
    made.fingerprint.count = task_.count;
    made.fingerprint.root = task_.root;
    made.call_hash = call_hash_of(made.fingerprint);
    return made;
  }

  bool right() const {
    for (std::size_t i = 0; has_output_ && i < out_count_; ++i)
      if (expected(i) && output_[i] != *expected(i)) return false;
    return true;
  }
  // What a caller may do as soon as its call is over.
  void scribble() {
    if (has_input_) std::fill(input_, input_ + in_count_, -7);
    if (has_output_) std::fill(output_, output_ + out_count_, -7);
  }

 private:
  std::vector<Piece> pieces(std::int64_t* data, std::size_t count, bool blocks) const {
    const auto piece = [&](std::size_t from, std::size_t to) {
      return Piece{reinterpret_cast<std::byte*>(data + from), (to - from) * 8};
    };
    std::vector<Piece> made;
    if (blocks) {
      for (std::size_t r = 0; r < static_cast<std::size_t>(size_); ++r)
        made.push_back(piece(r * task_.count, (r + 1) * task_.count));
    } else if (task_.scattered && count > 2) {
      // In the wrong order, so that they are pieces indeed.
      made = {piece(count / 3, count), piece(0, count / 3)};
    } else {
      made.push_back(piece(0, count));
    }
    return made;
  }
  // Element `i` of a rank's message, which may lie in two pieces.
  std::int64_t message(int rank, std::size_t i) const {
    if (!task_.scattered || in_blocks_ || task_.count <= 2) return element(index_, rank, i);
    return element(index_, rank, (i + task_.count / 3) % task_.count);
  }
  // Where element i of the output is in the message.
  std::size_t place(std::size_t i) const {
    if (!task_.scattered || out_blocks_ || task_.count <= 2) return i;
    return (i + task_.count - task_.count / 3) % task_.count;
  }
  std::int64_t sum(int first, int last, std::size_t i) const {
    std::int64_t total = 0;
    for (int r = first; r < last; ++r) total += message(r, i);
    return total;
  }
  std::optional<std::int64_t> expected(std::size_t i) const {
    const auto self = static_cast<std::size_t>(rank_);
    const int peer = static_cast<int>(i / task_.count);
    const std::size_t within = i % task_.count;
    switch (task_.collective) {
      case Collective::broadcast: return message(task_.root, place(i));
      case Collective::reduce:
      case Collective::all_reduce: return sum(0, size_, place(i));
      case Collective::scan: return sum(0, rank_ + 1, place(i));
      case Collective::exclusive_scan:
        if (rank_ == 0) return {};
        return sum(0, rank_, place(i));
      case Collective::gather:
      case Collective::all_gather: return message(peer, within);
      case Collective::scatter: return element(index_, task_.root, self * task_.count + place(i));
      case Collective::reduce_scatter: return sum(0, size_, self * task_.count + place(i));
      case Collective::all_to_all: return element(index_, peer, self * task_.count + within);
      case Collective::barrier: break;
    }
    return {};
  }

  Task task_;
  std::size_t index_;
  int rank_;
  int size_;
  bool in_blocks_ = false;
  bool out_blocks_ = false;
  bool has_input_ = false;
  bool has_output_ = false;
  std::int64_t* input_ = nullptr;
  std::int64_t* output_ = nullptr;
  std::size_t in_count_ = 0;
  std::size_t out_count_ = 0;
};

class HostWorld {
 public:
  static constexpr std::size_t kApart = 1009;  // elements from one rank's beginning to the next's

  // `readable`: the kernel may read the others' memory (which is this process's own).
  HostWorld(int size, bool readable, std::size_t most_elements, std::uint64_t seed)
      : size_(size), random_(seed) {
    for (int r = 0; r < size; ++r) {
      memories_.emplace_back(
          static_cast<RankMemory*>(std::aligned_alloc(4096, sizeof(RankMemory))));
      std::memset(static_cast<void*>(memories_.back().get()), 0, sizeof(RankMemory));
      heap_.emplace_back(most_elements);
      arena_.emplace_back(most_elements);
    }
    for (int r = 0; r < size; ++r) {
      endpoints_.push_back(std::make_unique<Endpoint>(*this, r));
      std::vector<HostMemory::Member> members;
      std::vector<int> others;
      for (int p = 0; p < size; ++p) {
        links_.push_back(std::make_unique<Link>(*this, p));
        members.push_back({memories_[static_cast<std::size_t>(p)].get(),
                           p == r ? nullptr : links_.back().get(), ::getpid()});
        if (p != r) others.push_back(p);
      }
      hosts_.push_back(std::make_unique<HostMemory>(
          r, members, others, *endpoints_.back(), nullptr,
          schedule::HostFacts{.crowded = false, .readable = readable}));
      runs_.emplace_back();
    }
  }

  // How many ranks ran each of the tasks in mapped memory.
  const std::vector<int>& mapped() const { return mapped_; }

  // Everything that is wrong, in words; empty when all is right.
  std::string run(const std::vector<Task>& tasks) {
    tasks_ = &tasks;
    mapped_.assign(tasks.size(), 0);
    at_.assign(static_cast<std::size_t>(size_), 0);
    states_.clear();
    states_.resize(static_cast<std::size_t>(size_));
    std::size_t quiet = 0;
    while (std::any_of(at_.begin(), at_.end(), [&](std::size_t at) { return at < tasks.size(); })) {
      const auto rank = random_() % static_cast<std::size_t>(size_);
      const std::string wrong = step(rank, quiet);
      if (!wrong.empty()) return wrong;
      if (quiet > 10'000) return "nobody moves any more";
    }
    return {};
  }

 private:
  struct Free {
    void operator()(RankMemory* stand) const { std::free(stand); }
  };
  struct Link final : transport::Link {
    Link(HostWorld& world, int peer) : world(world), peer(peer) {}
    std::string_view name() const override { return "host"; }
    bool shares_memory() const override { return true; }
    std::size_t eager_bytes() const override { return 0; }
    transport::Sent send(const transport::Header&, const void*, std::size_t,
                         std::uint64_t) override {
      return {};
    }
    void release(std::uint64_t) override {}
    bool revoked(std::uint64_t) const override { return false; }
    bool poll(transport::MessageSink&) override { return false; }
    void forget(std::uint32_t) override {}
    transport::MemoryRef share(const void*, std::size_t) const override { return {}; }
    std::byte* reach(const transport::MemoryRef& ref, std::size_t) const override {
      return reinterpret_cast<std::byte*>(world.arena_[static_cast<std::size_t>(peer)].data()) +
             ref.offset;
    }
    HostWorld& world;
    int peer;
  };
  struct Endpoint final : transport::Endpoint {
    Endpoint(HostWorld& world, int self) : world(world), self(self) {}
    int rank() const override { return self; }
    int size() const override { return world.size_; }
    transport::Link* link(int) override { return nullptr; }
    bool poll(transport::MessageSink&) override { return false; }
    void sleep(Nanoseconds, bool, const std::function<bool()>&) override {}
    void wake() override {}
    Result<transport::MemoryRegion> allocate_region(std::uint64_t, std::size_t,
                                                    const std::vector<int>&) override {
      return Status(Code::unsupported, "not here");
    }
    bool region_has_come(int, std::uint64_t) const override { return false; }
    void free_region(std::uint64_t) override {}
    std::string whereabouts(int) const override { return "here"; }
    transport::SharedStretch find_region(const void* data, std::size_t bytes,
                                         std::span<const int>) const override {
      const auto& arena = world.arena_[static_cast<std::size_t>(self)];
      const auto* at = static_cast<const std::int64_t*>(data);
      if (at < arena.data() || at + bytes / 8 > arena.data() + arena.size()) return {};
      return {{1, 0}, reinterpret_cast<const std::byte*>(arena.data()), arena.size() * 8};
    }
    std::uint64_t regions_version() const override { return 1; }
    HostWorld& world;
    int self;
  };
  struct State {
    std::unique_ptr<Sides> sides;
    Launch launch;
  };

  static std::optional<schedule::HostForms> forms_of(const Task& task, int rank, int size) {
    schedule::Request request;
    request.collective = task.collective;
    request.size = size;
    request.rank = rank;
    request.root = task.root;
    request.in_place = task.in_place || task.collective == Collective::broadcast;
    request.shots = task.shots;
    return *schedule::host_forms(task.algorithm, request);
  }

  std::string step(std::size_t rank, std::size_t& quiet) {
    if (at_[rank] == tasks_->size()) return {};
    const Task& task = (*tasks_)[at_[rank]];
    State& state = states_[rank];
    const auto words = [&](const char* what) {
      return fmt::format("task {} ({}, {} elements), rank {}: {}", at_[rank],
                         to_string(task.collective), task.count, rank, what);
    };
    if (!state.sides) {
      auto forms = forms_of(task, static_cast<int>(rank), size_);
      if (!forms) return words("has no host form");
      runs_[rank] = std::make_unique<HostRun>(*hosts_[rank], *std::move(forms));
      // Now and then one rank has plain memory where the others hope for better.
      const bool plain = !task.symmetric || (task.mixed && rank == 0);
      auto& memory = plain ? heap_[rank] : arena_[rank];
      state.sides = std::make_unique<Sides>(task, at_[rank], static_cast<int>(rank), size_,
                                            memory.data() + (task.apart ? rank * kApart : 0));
      state.launch = state.sides->launch();
      runs_[rank]->begin(state.launch, at_[rank] + 1);
    }
    quiet = runs_[rank]->step() ? 0 : quiet + 1;
    if (runs_[rank]->failed()) return words(runs_[rank]->failure().to_string().c_str());
    if (!runs_[rank]->done()) return {};
    if (!state.sides->right()) return words("wrong result");
    mapped_[at_[rank]] += runs_[rank]->was_mapped();
    state.sides->scribble();
    state.sides.reset();
    ++at_[rank];
    return {};
  }

  int size_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<RankMemory, Free>> memories_;
  std::vector<std::vector<std::int64_t>> heap_;
  std::vector<std::vector<std::int64_t>> arena_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<std::unique_ptr<HostMemory>> hosts_;
  std::vector<std::unique_ptr<HostRun>> runs_;
  const std::vector<Task>* tasks_ = nullptr;
  std::vector<int> mapped_;
  std::vector<std::size_t> at_;
  std::vector<State> states_;
};

}  // namespace tutti::engine::testing
