#include "tutti/work.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {
namespace {

class FinishedState final : public Work::State {
 public:
  explicit FinishedState(Status status) : status_(std::move(status)) {}
  Status wait(std::chrono::nanoseconds) override { return status_; }
  bool done() const override { return true; }
  Status status() const override { return status_; }
  void on_complete(std::function<void(const Status&)> callback) override { callback(status_); }
  Received received() const override { return {}; }

 private:
  Status status_;
};

}  // namespace

Work Work::finished(Status status) {
  if (status.ok()) return Work();
  return Work(std::make_shared<FinishedState>(std::move(status)));
}

void Work::on_complete(std::function<void(const Status&)> callback) {
  if (state_)
    state_->on_complete(std::move(callback));
  else
    callback(Status());
}

}  // namespace v1
}  // namespace tutti
