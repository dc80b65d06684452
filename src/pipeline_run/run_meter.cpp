#include "pipeline_run/run_meter.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::pipeline {
namespace {

// A trace keeps some thousand names: longer steps do without the micro-batch's number.
constexpr int kMostNumbered = 256;

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

RunMeter::RunMeter(trace::Sink* sink, const PipelineShape& shape)
    : sink_(sink), counts_(shape.micro_batches * shape.virtual_stages <= kMostNumbered) {}

void RunMeter::begin(std::int64_t now) {
  began_ = now;
  busy_ = waiting_ = bubble_ = 0;
  slices_.clear();
}

// "forward 3", "recv_gradient 0 of virtual stage 1".
std::string RunMeter::name_of(const PipelineOp& op) const {
  std::string name(to_string(op.kind));
  if (counts_) name += fmt::format(" {}", op.micro_batch);
  if (op.virtual_stage > 0) name += fmt::format(" of virtual stage {}", op.virtual_stage);
  return name;
}

void RunMeter::computed(const PipelineOp& op, std::int64_t begin, std::int64_t end) {
  busy_ += end - begin;
  slices_.push_back(
      {op.kind, op.micro_batch, op.virtual_stage, seconds(begin - began_), seconds(end - began_)});
  if (sink_ != nullptr) sink_->compute(name_of(op), begin, end);
}

void RunMeter::waited(const PipelineOp& receive, std::int64_t begin, std::int64_t sent,
                      std::int64_t end) {
  const std::int64_t left = std::clamp(sent, begin, end);
  bubble_ += left - begin;
  waiting_ += end - left;
  if (sink_ != nullptr && left > begin)
    sink_->bubble(fmt::format("{} from stage {}", name_of(receive), receive.peer), begin, left);
}

void RunMeter::waited_to_send(std::int64_t begin, std::int64_t end) { waiting_ += end - begin; }

PipelineTimes RunMeter::finish(std::int64_t now) {
  return {seconds(now - began_), seconds(busy_), seconds(waiting_), seconds(bubble_)};
}

}  // namespace tutti::pipeline
