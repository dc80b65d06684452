// Ranks in processes of their own that meet in kernels, on memory that they have mapped from each other.
#include <sys/mman.h>

#include <filesystem>
#include <memory>

#include "cuda/reduction.hpp"
#include "unit/cuda/on_device.hpp"

namespace tutti::cuda {
namespace {

constexpr int kRanks = 3;
constexpr std::size_t kCount = 300;
constexpr std::size_t kBytes = kCount * sizeof(float);

// What ranks tell each other by way of the host before they meet.
struct Board {
  std::atomic<int> arrived;
  IpcHandle memory[kRanks];
  IpcHandle room;                  // rank 0's
  Address mapped[kRanks][kRanks];  // [by][of]

  void meet() {
    const int round = arrived.fetch_add(1) / kRanks;
    while (arrived.load() < (round + 1) * kRanks)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

// Flags and posts, as they lie in rank 0's memory.
struct RoomLayout {
  std::uint64_t entered[kRanks * kFlagStride];
  std::uint64_t left[kRanks * kFlagStride];
  Post posts[kRanks * kRanks];
};

class RankProcess {
 public:
  RankProcess(Board& board, int rank)
      : board_(board),
        rank_(rank),
        device_(open_device()),
        stream_(need(device_->make_stream())),
        memory_(need(device_->allocate(2 * kBytes + 256))),
        room_(need(device_->allocate(sizeof(RoomLayout)))),
        host_(need(device_->allocate_pinned(kBytes))),
        words_(*device_) {
    EXPECT_OK(device_->fill(memory_.address(), 0, memory_.bytes(), stream_.get()));
    EXPECT_OK(device_->fill(room_.address(), 0, room_.bytes(), stream_.get()));
    EXPECT_OK(device_->synchronize(stream_.get()));
    board.memory[rank] = exported(memory_);
    if (rank == 0) board.room = exported(room_);
    board.meet();
    for (int p = 0; p < kRanks; ++p)
      board.mapped[rank][p] =
          p == rank ? memory_.address() : need(device_->import_allocation(board.memory[p]));
    room_address_ = rank == 0 ? room_.address() : need(device_->import_allocation(board.room));
    board.meet();
  }

  void round(int number) {
    std::vector<float> numbers(kCount, static_cast<float>(number * 10 + rank_));
    copy_in(numbers);
    const Phase phase = make_phase(number);
    EXPECT_OK(device_->launch(phase, Dtype::f32, 1, stream_.get()));
    EXPECT_OK(device_->copy(host_.address(), memory_.address() + kBytes, kBytes, stream_.get()));
    EXPECT_OK(device_->synchronize(stream_.get()));
    std::memcpy(numbers.data(), host_.data(), kBytes);
    EXPECT_EQ(numbers, std::vector<float>(kCount, static_cast<float>(kRanks * number * 10 + 3)));
    EXPECT_EQ(words_.get(0), 0U) << "a fault";
    EXPECT_EQ(words_.get(1), phase.ticket);
  }

 private:
  IpcHandle exported(const Memory& memory) {
    return need(device_->export_allocation(need(device_->allocation_of(memory.address()))));
  }
  void copy_in(const std::vector<float>& numbers) {
    std::memcpy(host_.data(), numbers.data(), kBytes);
    EXPECT_OK(device_->copy(memory_.address(), host_.address(), kBytes, stream_.get()));
  }

  // Every rank folds its part for all: sources at the beginning of each rank's memory, targets behind.
  Phase make_phase(int number) {
    auto* const room = reinterpret_cast<RoomLayout*>(room_address_);
    const Address own = memory_.address() + 2 * kBytes;
    Phase phase{};
    phase.ranks = kRanks;
    phase.rank = rank_;
    phase.enter = Enter::meet;
    phase.leave = Leave::meet;
    phase.ticket = static_cast<std::uint64_t>(number);
    phase.fault = reinterpret_cast<std::uint64_t*>(words_.address(0));
    phase.done = reinterpret_cast<std::uint64_t*>(words_.address(1));
    phase.meeting = {room->entered,
                     room->left,
                     room->posts,
                     reinterpret_cast<std::uint64_t*>(own),
                     reinterpret_cast<std::uint32_t*>(own + 64),
                     reinterpret_cast<const std::uint32_t*>(words_.address(2))};
    const std::uint64_t part = kBytes / kRanks;
    for (int r = 0; r < kRanks; ++r) {
      const Address theirs = board_.mapped[r][rank_];
      phase.mine[r] = {theirs, theirs + kBytes, 77, 0};
      phase.tags[r] = 77;
      phase.fold.operands[r] =
          phase.fold.targets[r] = {static_cast<std::uint64_t>(rank_) * part, r, 1};
    }
    phase.fold.operand_count = phase.fold.target_count = kRanks;
    phase.fold.bytes = part;
    set_reduction(phase.fold, {Dtype::f32, ReduceOp::sum, true, kRanks});
    return phase;
  }

  Board& board_;
  int rank_;
  std::shared_ptr<Device> device_;
  Stream stream_;
  Memory memory_;
  Memory room_;
  Memory host_;
  Words words_;
  Address room_address_ = 0;
};

void run_ranks(const test::Environment& environment) {
  void* const shared =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* const board = new (shared) Board{};
  on_emulated_gpus(environment, kRanks, [&](int rank) {
    RankProcess process(*board, rank);
    for (int number = 1; number <= 3; ++number) process.round(number);
    board->meet();
  });
  ::munmap(shared, sizeof(Board));
}

TEST_F(EmulatedGpu, runs_ranks_of_several_processes_that_meet_in_their_kernels) { run_ranks({}); }

TEST_F(EmulatedGpu, lets_kernels_of_several_processes_take_turns) {
  const std::string file =
      std::filesystem::temp_directory_path() / ("tutti_slice_" + std::to_string(::getpid()));
  run_ranks({{"FAKE_CUDA_TIME_SLICED", file}});
  EXPECT_TRUE(std::filesystem::remove(file));
}

}  // namespace
}  // namespace tutti::cuda
