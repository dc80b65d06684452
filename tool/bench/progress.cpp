#include "tool/bench/progress.hpp"

#include <fmt/format.h>

#include "bench/protocol.hpp"

namespace tutti::tool {
namespace {

constexpr double kMomentUs = 1.5e6;
constexpr std::size_t kWidth = 30;

}  // namespace

std::string bar_words(std::size_t done, std::size_t steps, double spent_s,
                      const std::string& what) {
  const std::size_t filled = steps == 0 ? kWidth : done * kWidth / steps;
  std::string text =
      fmt::format("[{}{}] {:3} %  {}", std::string(filled, '#'), std::string(kWidth - filled, '-'),
                  steps == 0 ? 100 : done * 100 / steps, what);
  if (done > 0 && done < steps)
    text += fmt::format(", about {:.0f} s left",
                        spent_s / static_cast<double>(done) * static_cast<double>(steps - done));
  return text;
}

BenchProgress::BenchProgress(const std::string& path, std::size_t steps)
    : steps_(steps), began_us_(bench::now_us()) {
  if (!path.empty()) terminal_ = std::fopen(path.c_str(), "w");
}

BenchProgress::~BenchProgress() {
  clear();
  if (terminal_ != nullptr) std::fclose(terminal_);
}

void BenchProgress::show(std::size_t done, const std::string& what) {
  const double spent_us = bench::now_us() - began_us_;
  if (terminal_ == nullptr || spent_us < kMomentUs) return;
  fmt::print(terminal_, "\r\033[K{}", bar_words(done, steps_, spent_us * 1e-6, what));
  std::fflush(terminal_);
  drawn_ = true;
}

void BenchProgress::clear() {
  if (!drawn_) return;
  std::fputs("\r\033[K", terminal_);
  std::fflush(terminal_);
  drawn_ = false;
}

void BenchProgress::print(const std::string& text) {
  clear();
  std::FILE* to = terminal_ != nullptr ? terminal_ : stdout;
  std::fputs(text.c_str(), to);
  std::fflush(to);
}

}  // namespace tutti::tool
