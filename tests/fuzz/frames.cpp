// Bytes as they come from a tcp connection, through everything that believes them: the reader of frames,
// messages between two ranks, and a run of a collective.
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <vector>

#include "core/check.hpp"
#include "core/sockets.hpp"
#include "engine/message_run.hpp"
#include "engine/point_to_point.hpp"
#include "fuzz/targets.hpp"
#include "schedule/catalog.hpp"
#include "schedule/passes.hpp"
#include "transport/tcp/frame_reader.hpp"

namespace tutti::fuzz {
namespace {

using transport::BufferPool;
using transport::FrameReader;
using transport::Header;
using transport::MessageKind;
using transport::Payload;

constexpr std::uint64_t kSequence = 3;

struct PoolLink final : transport::Link {
  std::string_view name() const override { return "pool"; }
  std::size_t eager_bytes() const override { return 1 << 16; }
  transport::Sent send(const Header&, const void*, std::size_t bytes, std::uint64_t) override {
    return {true, false, bytes};
  }
  void release(std::uint64_t lease) override { pool.release(lease); }
  bool poll(transport::MessageSink&) override { return false; }
  void forget(std::uint32_t) override {}
  BufferPool pool;
};

// Rank 0 of two.
class Receiver final : public transport::MessageSink, engine::GroupView {
 public:
  Receiver() : run_(*this, compiled(), 128) {
    launch_.collective = Collective::all_reduce;
    launch_.dtype = Dtype::i64;
    launch_.input = {{reinterpret_cast<std::byte*>(values_.data()), values_.size() * 8}};
    launch_.output = {{reinterpret_cast<std::byte*>(sums_.data()), sums_.size() * 8}};
    run_.begin(launch_, kSequence);
    for (const std::size_t bytes : {100u, 1000u, 100'000u, 0u}) {
      received_.push_back(std::make_unique<std::byte[]>(bytes));
      post(engine::Posting::recv(bytes == 1000 ? -1 : 1, 0, received_.back().get(), bytes));
    }
    for (const std::size_t bytes : {10u, 90'000u})
      post(engine::Posting::send(1, 0, received_[2].get(), bytes));
  }
  ~Receiver() override {
    run_.abandon();
    messages_.abandon(Status(Code::aborted, "over"));
  }
  BufferPool& pool() { return link_.pool; }
  bool failed() const { return failed_; }
  void step() {
    if (failed_) return;
    run_.step();
    messages_.step(Nanoseconds(1));
    failed_ = !run_.failure().ok() || !messages_.failure().ok();
  }

  std::byte* place(int, const Header& header) override {
    return header.kind == MessageKind::data ? run_.place(1, header) : nullptr;
  }
  void on_message(int, const Header& header, const Payload& payload) override {
    const auto segment = engine::Segment::keep(header, payload);
    const bool for_run = header.kind == MessageKind::data && header.sequence == kSequence;
    const bool for_pair = header.kind == MessageKind::eager ||
                          header.kind == MessageKind::request ||
                          header.kind == MessageKind::ready || header.kind == MessageKind::bulk ||
                          header.kind == MessageKind::credit;
    if (for_run && !failed_)
      run_.deliver(1, header, segment);
    else if (for_pair && !failed_)
      failed_ = !messages_.deliver(1, header, segment).ok();
    else if (payload.lease != 0)
      link_.release(payload.lease);
    step();
  }
  void on_sent(std::uint64_t) override {}
  void on_down(int, const Status&) override {}

 private:
  static const engine::Compiled& compiled() {
    static const engine::Compiled ring = [] {
      schedule::Request request;
      request.collective = Collective::all_reduce;
      request.size = 2;
      return engine::compile(schedule::fuse_folds(*schedule::build(Algorithm::ring, request)));
    }();
    return ring;
  }
  void post(engine::Posting posting) {
    posting.batch = std::make_shared<engine::Batch>();
    posting.batch->open = 1;
    messages_.post(std::move(posting));
  }
  transport::Link& link_to(int) override { return link_; }
  bool has_arrived(int) const override { return true; }
  bool all_have_arrived() const override { return true; }
  std::uint32_t channel() const override { return 1; }

  PoolLink link_;
  std::vector<std::int64_t> values_{std::vector<std::int64_t>(128)};
  std::vector<std::int64_t> sums_{std::vector<std::int64_t>(128)};
  engine::Launch launch_;
  engine::MessageRun run_;
  engine::PointToPoint messages_{*this, 0, 2, "fuzz"};
  std::vector<std::unique_ptr<std::byte[]>> received_;
  bool failed_ = false;
};

struct SocketPair {
  SocketPair() {
    int ends[2];
    TUTTI_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    out.reset(ends[0]);
    in.reset(ends[1]);
  }
  void write(Input input) {
    if (!input.empty()) (void)!::write(out.get(), input.data(), input.size());
  }
  Descriptor out, in;
};

}  // namespace

// Byte 0: two streams, checksums; byte 1: how many of the next bytes come on the second one.
void frames(Input input) {
  const auto mode = take<std::uint8_t>(input);
  const std::size_t streams = (mode & 1) != 0 ? 2 : 1;
  const std::size_t aside = std::min<std::size_t>(take<std::uint16_t>(input), input.size());
  Receiver receiver;
  FrameReader reader(1, receiver.pool(), streams, (mode & 2) != 0);
  SocketPair first, second;
  second.write(input.first(aside));
  input = input.subspan(aside);
  const std::size_t piece = (mode & 4) != 0 ? 61 : 4096;  // frames come in pieces, too
  for (bool corrupt = false; !input.empty() && !corrupt && !receiver.failed();) {
    const Input now = input.first(std::min(piece, input.size()));
    input = input.subspan(now.size());
    first.write(now);
    for (std::size_t stream = 0; stream < streams && !corrupt; ++stream)
      corrupt = reader.read(stream, stream == 0 ? first.in.get() : second.in.get(), receiver) ==
                FrameReader::End::corrupt;
    receiver.step();
  }
  reader.forget(1);
}

}  // namespace tutti::fuzz
