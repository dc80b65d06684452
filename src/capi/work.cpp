// Works: waiting, asking, being called back.

#include "capi/handles.hpp"

using namespace tutti;
using capi::guard;
using capi::null_argument;

tutti_status* tutti_work_wait(tutti_work* work, int64_t timeout_ns) {
  return guard([&]() -> Status {
    if (work == nullptr) return null_argument("work");
    if (timeout_ns < 0) return work->work.wait();
    return work->work.wait(std::chrono::nanoseconds(timeout_ns));
  });
}

tutti_status* tutti_work_wait_on(tutti_work* work, void* stream) {
  return guard([&]() -> Status {
    return work == nullptr ? null_argument("work") : work->work.wait_on(stream);
  });
}

int tutti_work_done(const tutti_work* work) { return work == nullptr || work->work.done() ? 1 : 0; }

tutti_status* tutti_work_status(const tutti_work* work) {
  return guard(
      [&]() -> Status { return work == nullptr ? null_argument("work") : work->work.status(); });
}

tutti_status* tutti_work_received(const tutti_work* work, tutti_received* received) {
  return guard([&]() -> Status {
    if (work == nullptr) return null_argument("work");
    return capi::fill(capi::received_of(work->work.received()), "received", received);
  });
}

tutti_status* tutti_work_on_complete(tutti_work* work, tutti_callback callback, void* context) {
  return guard([&]() -> Status {
    if (work == nullptr || callback == nullptr) return null_argument("work or callback");
    work->work.on_complete([callback, context](const Status& outcome) {
      const tutti_status lent{outcome};
      callback(outcome.ok() ? nullptr : &lent, context);
    });
    return Status();
  });
}

void tutti_work_free(tutti_work* work) { delete work; }
