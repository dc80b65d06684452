// bench/hand_over.cpp - how fast do new weights come from a trainer to one receiver?
//
//   tutti run -n 2 build/bin/bench_hand_over --device cuda            two processes on one GPU
//   tutti run -n 2 build/bin/bench_hand_over --device cpu --json
//
// A version takes from the call of send() on rank 0 until rank 1 shows it, on the host's clock, which both
// read; nothing else is under way. The ceiling is what both ranks reach who copy within their own memory at
// the same time, in this run: bytes read and bytes written, of both. A version that is *lent* is copied once,
// from the trainer's weights into the receiver's memory; one that is *copied* twice, because the trainer has
// its weights back at once. "of ceiling" counts the copies that are made; "as one copy" counts 2 bytes
// per byte of weights, whatever is made.
#include "tutti/train/hand_over.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/protocol.hpp"
#include "cuda/device.hpp"
#include "tutti/tutti.hpp"

namespace {

using tutti::bench::now_us;
using tutti::train::NamedTensor;

struct Wanted {
  bool on_gpu = false;
  bool json = false;
  std::size_t bytes = 1UL << 30;
  std::size_t tensors = 16;
  std::size_t bucket_bytes = 0;
  int iterations = 20;
};
constexpr int kWarmUps = 3;
constexpr int kCeilingCopies = 8;  // in a row: launching one is no part of the ceiling

void check(const tutti::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "bench_hand_over: %s\n", status.to_string().c_str());
  std::exit(1);
}
template <class T>
T take(tutti::Result<T> result) {
  check(result.status());
  return *std::move(result);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Memory of the kind that is measured, and copies in it.
class Place {
 public:
  explicit Place(bool on_gpu) {
    if (!on_gpu) return;
    gpu_ = take(tutti::cuda::Device::open(tutti::cuda::current_device()));
    stream_ = take(gpu_->make_stream());
  }
  std::string name() const { return gpu_ ? gpu_->facts().name : "cpu"; }
  bool under_mps() const { return gpu_ && gpu_->facts().under_mps; }
  void* stream() const { return stream_.get(); }

  std::byte* allocate(std::size_t bytes) {
    std::byte* data = nullptr;
    if (gpu_) {
      memory_.push_back(take(gpu_->allocate(bytes)));
      data = memory_.back().data();
    } else {
      host_.push_back(std::make_unique<std::byte[]>(bytes));
      data = host_.back().get();
    }
    fill(data, 1, bytes);
    return data;
  }
  void release() { memory_.clear(), host_.clear(); }
  void fill(std::byte* data, int value, std::size_t bytes) {
    if (!gpu_) return (void)std::memset(data, value, bytes);
    check(gpu_->fill(reinterpret_cast<std::uintptr_t>(data), static_cast<std::uint8_t>(value),
                     bytes, stream()));
    check(gpu_->synchronize(stream()));
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (!gpu_) return (void)std::memcpy(to, from, bytes);
    check(gpu_->copy(reinterpret_cast<std::uintptr_t>(to), reinterpret_cast<std::uintptr_t>(from),
                     bytes, stream()));
  }
  void synchronize() {
    if (gpu_) check(gpu_->synchronize(stream()));
  }
  std::byte first(const std::byte* data) {
    std::byte value{};
    if (!gpu_) return *data;
    check(gpu_->copy(reinterpret_cast<std::uintptr_t>(&value),
                     reinterpret_cast<std::uintptr_t>(data), 1, stream()));
    check(gpu_->synchronize(stream()));
    return value;
  }

 private:
  std::shared_ptr<tutti::cuda::Device> gpu_;
  tutti::cuda::Stream stream_;
  std::vector<tutti::cuda::Memory> memory_;
  std::vector<std::unique_ptr<std::byte[]>> host_;
};

// GB/s read and written by all of `ranks` who copy at the same time; the slowest counts.
double copy_ceiling(tutti::Group& group, Place& place, std::size_t bytes, int ranks) {
  const bool copies = group.rank() >= group.size() - ranks;
  std::byte* from = copies ? place.allocate(bytes) : nullptr;
  std::byte* to = copies ? place.allocate(bytes) : nullptr;
  std::vector<double> rates;
  for (int i = 0; i < kWarmUps + 10; ++i) {
    check(group.barrier());
    double took = now_us();
    for (int c = 0; copies && c < kCeilingCopies; ++c) place.copy(to, from, bytes);
    place.synchronize();
    took = copies ? now_us() - took : 0;
    check(group.all_reduce(tutti::Buffer::of(&took, 1), tutti::ReduceOp::max));
    if (i >= kWarmUps)
      rates.push_back(2e-3 * kCeilingCopies * ranks * static_cast<double>(bytes) / took);
  }
  place.release();
  return median(rates);
}

class HandOver {
 public:
  HandOver(tutti::Group& group, Place& place, const Wanted& wanted)
      : group_(group), place_(place), wanted_(wanted) {
    const int receivers[] = {1};
    if (group.rank() == 1)
      receiver_ = take(tutti::train::WeightReceiver::create(group, 0, receivers));
    else
      sender_ = take(tutti::train::WeightSender::create(group, 0, receivers,
                                                        {.bucket_bytes = wanted.bucket_bytes}));
    const std::size_t each = wanted.bytes / wanted.tensors;
    for (std::size_t i = 0; sender_ && i < wanted.tensors; ++i) {
      tutti::ConstBuffer values(place.allocate(each), each, tutti::Dtype::u8);
      values.device = wanted.on_gpu ? tutti::Device::cuda : tutti::Device::cpu;
      weights_.push_back(
          {"tensor " + std::to_string(i), {static_cast<std::int64_t>(each)}, values});
    }
  }

  // µs of a version, the median.
  double measure(bool lend) {
    std::vector<double> times;
    for (int i = 0; i < kWarmUps + wanted_.iterations; ++i) {
      const int mark = static_cast<int>(++version_ % 200);
      for (const NamedTensor& tensor : weights_)
        place_.fill(static_cast<std::byte*>(const_cast<void*>(tensor.values.data)), mark,
                    tensor.values.bytes());
      check(group_.barrier());
      double moments[2] = {0, 0};  // sent, shown
      if (sender_) {
        moments[0] = now_us();
        check(sender_->send(version_, weights_,
                            {.stream = wanted_.on_gpu ? place_.stream() : nullptr, .lend = lend}));
        check(sender_->flush());
        for (const auto& [rank, why] : sender_->lost()) check(why);
      } else {
        check(receiver_->wait_for(version_, std::chrono::minutes(5), place_.stream()));
        moments[1] = now_us();
        for (const NamedTensor& tensor : receiver_->weights()) expect(tensor, mark);
      }
      check(group_.all_reduce(tutti::Buffer::of(moments, 2), tutti::ReduceOp::max));
      if (i >= kWarmUps) times.push_back(moments[1] - moments[0]);
    }
    return median(times);
  }

 private:
  void expect(const NamedTensor& tensor, int mark) {
    const auto* data = static_cast<const std::byte*>(tensor.values.data);
    if (place_.first(data) == std::byte(mark) &&
        place_.first(data + tensor.values.bytes() - 1) == std::byte(mark))
      return;
    check({tutti::Code::corrupt, tensor.name + " is not of the version that is shown"});
  }

  tutti::Group& group_;
  Place& place_;
  const Wanted& wanted_;
  std::vector<NamedTensor> weights_;
  std::uint64_t version_ = 0;
  std::unique_ptr<tutti::train::WeightReceiver> receiver_;
  std::unique_ptr<tutti::train::WeightSender> sender_;
};

struct Row {
  const char* way;
  int copies;
  double us;
};

void print(const Wanted& wanted, const Place& place, double ceiling, double alone,
           const std::vector<Row>& rows) {
  const auto gb_s = [&](const Row& row) {
    return 1e-3 * static_cast<double>(wanted.bytes) / row.us;
  };
  const auto percent = [&](const Row& row, int copies) {
    return 100 * 2 * copies * gb_s(row) / ceiling;
  };
  if (wanted.json) {
    std::printf(R"({"device":"%s","mps":%s,"bytes":%zu,"tensors":%zu,"ceiling_gb_s":%.1f,)"
                R"("ceiling_alone_gb_s":%.1f,"rows":[)",
                place.name().c_str(), place.under_mps() ? "true" : "false", wanted.bytes,
                wanted.tensors, ceiling, alone);
    for (const Row& row : rows)
      std::printf(R"(%s{"way":"%s","us":%.1f,"gb_s":%.1f,"copies":%d,"percent_of_ceiling":%.1f,)"
                  R"("percent_as_one_copy":%.1f})",
                  &row == rows.data() ? "" : ",", row.way, row.us, gb_s(row), row.copies,
                  percent(row, row.copies), percent(row, 1));
    std::printf("]}\n");
    return;
  }
  std::printf("# bench_hand_over: %zu bytes in %zu tensors to one receiver, %s%s\n", wanted.bytes,
              wanted.tensors, place.name().c_str(), place.under_mps() ? ", MPS" : "");
  std::printf(
      "# copy ceiling: %.1f GB/s read and written by both ranks at once, %.1f by one alone\n",
      ceiling, alone);
  std::printf("# %6s %12s %10s %8s %12s %12s\n", "", "median (µs)", "GB/s", "copies", "of ceiling",
              "as one copy");
  for (const Row& row : rows)
    std::printf("  %6s %12.1f %10.1f %8d %10.1f %% %10.1f %%\n", row.way, row.us, gb_s(row),
                row.copies, percent(row, row.copies), percent(row, 1));
}

[[noreturn]] void refuse(const std::string& what) {
  std::fprintf(
      stderr,
      "bench_hand_over: %s\nusage: tutti run -n 2 bench_hand_over [--device cpu|cuda] [--bytes N] "
      "[--tensors N] [--bucket-bytes N] [--iterations N] [--json]\n",
      what.c_str());
  std::exit(2);
}

Wanted parse(int count, char** words) {
  Wanted wanted;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "--json") {
      wanted.json = true;
      continue;
    }
    if (i + 1 == count) refuse("'" + std::string(word) + "' is unknown or lacks its value");
    const std::string_view value = words[++i];
    const std::size_t number = std::strtoull(words[i], nullptr, 10);
    if (word == "--device" && (value == "cpu" || value == "cuda"))
      wanted.on_gpu = value == "cuda";
    else if (word == "--bytes" && number > 0)
      wanted.bytes = number;
    else if (word == "--tensors" && number > 0)
      wanted.tensors = number;
    else if (word == "--bucket-bytes")
      wanted.bucket_bytes = number;
    else if (word == "--iterations" && number > 0)
      wanted.iterations = static_cast<int>(number);
    else
      refuse("'" + std::string(word) + " " + std::string(value) + "' is not understood");
  }
  if (wanted.bytes % wanted.tensors != 0) refuse("the tensors must be of one size");
  return wanted;
}

}  // namespace

int main(int count, char** words) {
  const Wanted wanted = parse(count, words);
  auto group = take(tutti::Group::from_environment());
  if (group->size() != 2) refuse("needs two ranks");
  Place place(wanted.on_gpu);
  const double ceiling = copy_ceiling(*group, place, wanted.bytes, 2);
  const double alone = copy_ceiling(*group, place, wanted.bytes, 1);
  HandOver hand_over(*group, place, wanted);
  std::vector<Row> rows = {{"lent", 1, hand_over.measure(true)},
                           {"copied", 2, hand_over.measure(false)}};
  if (group->rank() == 0) print(wanted, place, ceiling, alone, rows);
  return 0;
}
