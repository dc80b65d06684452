// The writing half of tutti/train/checkpoint.hpp: at once, or beside training.
#include <atomic>
#include <memory>
#include <new>
#include <system_error>
#include <thread>

#include "checkpoint/saving.hpp"
#include "core/exhausted.hpp"
#include "core/threads.hpp"
#include "train/agreement.hpp"
#include "tutti/train/checkpoint.hpp"

namespace tutti::checkpoint {
namespace {

using train::CheckpointInfo;
using train::DataParallel;

// Written by one thread, which is this object's own; agreed on in a group of its own, so that
// neither waits behind a bucket. The group's calls are that thread's while it runs, ours otherwise.
class ThreadWriter final : public train::CheckpointWriter {
 public:
  explicit ThreadWriter(std::shared_ptr<Group> group) : group_(std::move(group)) {}
  ~ThreadWriter() override { join(); }

  Status start(DataParallel& model, const std::string& folder, const CheckpointInfo& info,
               int keep) override {
    if (Status status = wait(); !status.ok()) return status;
    saving_.emplace(folder, info, keep);
    Status status = saving_->prepare(model);
    if (status.ok()) status = train::agree(*group_, copy());
    if (!status.ok()) {
      saving_.reset();
      return status.annotate("saving a checkpoint");
    }
    done_ = false;
    try {
      thread_ = start_quiet_thread("tutti save", [this] { write(); });
    } catch (const std::system_error&) {
      write();  // no thread to be had: here, then
    }
    return {};
  }

  bool done() const override { return done_; }

  Status wait() override {
    join();
    return verdict_;
  }

 private:
  Status copy() {
    try {
      saving_->keep_copies(memory_);
    } catch (const std::bad_alloc&) {
      return {Code::out_of_memory, "no memory for a copy of what is to be saved beside training"};
    }
    return {};
  }

  void write() {
    verdict_ = or_exhausted([&] { return saving_->finish(*group_); });
    verdict_ = verdict_.annotate("saving a checkpoint");
    saving_.reset();
    done_ = true;
  }

  void join() {
    if (thread_.joinable()) thread_.join();  // bounded: it writes one file and ends
  }

  std::shared_ptr<Group> group_;
  std::optional<Saving> saving_;
  CopyMemory memory_;
  std::thread thread_;
  Status verdict_;  // the thread's until done_
  std::atomic<bool> done_{true};
};

}  // namespace
}  // namespace tutti::checkpoint

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

Status save_checkpoint(DataParallel& model, const std::string& folder, const CheckpointInfo& info,
                       int keep) {
  checkpoint::Saving saving(folder, info, keep);
  Status status = saving.prepare(model);
  if (status.ok()) status = saving.finish(model.everyone());
  return status.annotate("saving a checkpoint");
}

Result<std::unique_ptr<CheckpointWriter>> CheckpointWriter::create(Group& group) {
  auto own = group.duplicate({.name = "checkpoints", .urgency = Urgency::bulk});
  if (!own.ok()) return own.status().annotate("the writer of checkpoints");
  return std::unique_ptr<CheckpointWriter>(new checkpoint::ThreadWriter(*std::move(own)));
}

}  // namespace v1
}  // namespace tutti::train
