// Rank 0 has a matrix, and every rank is to work on some rows of it. By broadcast everybody gets all of
// it and keeps a part; by scatter nobody but rank 0 ever holds more than his part. The result is the
// same, the memory is not: what fits scattered may not fit broadcast.
//
//   tutti run -n 4 build/bin/examples/scatter_memory
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "example.hpp"

using namespace example;

namespace {

constexpr std::size_t kColumns = 1 << 16;
constexpr std::size_t kRowsEach = 64;  // 16 MiB of floats
constexpr std::size_t kSlack = 6 << 20;

// What of this process lies in memory, as the kernel counts it.
std::size_t resident_bytes() {
  long pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return static_cast<std::size_t>(pages) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::vector<float> make_matrix(std::size_t rows) {
  std::vector<float> matrix(rows * kColumns);
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i / kColumns);
  return matrix;
}

double sum_of(const float* rows) {
  double sum = 0;
  for (std::size_t i = 0; i < kRowsEach * kColumns; ++i) sum += static_cast<double>(rows[i]);
  return sum / static_cast<double>(kColumns);
}

// The library's own buffers grow by a little with the first large call.
void report(int rank, const char* way, std::size_t before, std::size_t expected, double sum) {
  const std::size_t took = resident_bytes() - before;
  const bool agrees = took + kSlack > expected && took < expected + kSlack;
  say("rank %d by %s: %zu MiB more (%s), sum of its rows %g", rank, way, expected >> 20,
      agrees ? "so says the kernel" : "the kernel counts others", sum);
}

}  // namespace

int main() {
  auto group = join();
  const int rank = group->rank();
  const std::size_t rows = kRowsEach * static_cast<std::size_t>(group->size());
  const std::size_t part = kRowsEach * kColumns;
  const std::size_t first = part * static_cast<std::size_t>(rank);
  std::vector<float> matrix = rank == 0 ? make_matrix(rows) : std::vector<float>();
  std::vector<float> own;
  {
    const std::size_t before = resident_bytes();
    if (rank != 0) matrix.resize(rows * kColumns);
    check(group->broadcast(tutti::Buffer::of(matrix), 0));
    report(rank, "broadcast", before, rank == 0 ? 0 : matrix.size() * sizeof(float),
           sum_of(matrix.data() + first));
    if (rank != 0) std::vector<float>().swap(matrix);
  }
  {
    const std::size_t before = resident_bytes();
    own.resize(part);
    check(group->scatter(tutti::ConstBuffer::of(matrix), tutti::Buffer::of(own), 0));
    report(rank, "scatter", before, part * sizeof(float), sum_of(own.data()));
  }
}
