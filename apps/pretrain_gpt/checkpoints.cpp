#include "checkpoints.hpp"

namespace pretrain {

using tutti::Status;
using tutti::train::CheckpointWriter;

tutti::Result<std::unique_ptr<Checkpoints>> Checkpoints::create(tutti::Group& group,
                                                                const Flags& flags,
                                                                TrainingReport* report) {
  auto checkpoints = std::make_unique<Checkpoints>();
  checkpoints->folder_ = flags.save;
  checkpoints->keep_ = flags.keep;
  checkpoints->report_ = report;
  if (flags.async_save) {
    auto writer = CheckpointWriter::create(group);
    if (!writer.ok()) return writer.status();
    checkpoints->writer_ = *std::move(writer);
  }
  return checkpoints;
}

Status Checkpoints::save(tutti::train::DataParallel& layer,
                         const tutti::train::CheckpointInfo& info) {
  const auto called = Clock::now();
  if (auto status = finish(); !status.ok()) return status;
  began_ = Clock::now();
  Status status = writer_ ? writer_->start(layer, folder_, info, keep_)
                          : tutti::train::save_checkpoint(layer, folder_, info, keep_);
  if (!status.ok()) return status;
  under_way_ = true;
  last_.step = info.iteration;
  last_.held_s = std::chrono::duration<double>(Clock::now() - called).count();
  if (!writer_) tell();
  return {};
}

bool Checkpoints::failed() {
  if (!under_way_ || !writer_ || !writer_->done()) return false;
  if (!writer_->wait().ok()) return true;
  tell();
  return false;
}

Status Checkpoints::finish() {
  if (!writer_) return {};
  Status status = writer_->wait();
  if (status.ok() && under_way_) tell();
  return status;
}

void Checkpoints::tell() {
  under_way_ = false;
  last_.took_s = std::chrono::duration<double>(Clock::now() - began_).count();
  if (report_ != nullptr) report_->checkpoint(last_, folder_);
}

}  // namespace pretrain
