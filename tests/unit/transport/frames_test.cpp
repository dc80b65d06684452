// The two halves of a tcp link, over a socket pair.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "core/sockets.hpp"
#include "transport/tcp/frame_queue.hpp"
#include "transport/tcp/frame_reader.hpp"
#include "transport/tcp/pace.hpp"

namespace tutti::transport {
namespace {

struct FrameMessages final : MessageSink {
  std::byte* place(int, const Header& header) override {
    ++asked;
    return where == nullptr ? nullptr : where + header.offset;
  }
  void on_message(int, const Header& header, const Payload& payload) override {
    headers.push_back(header);
    leases.push_back(payload.lease);
    placed.push_back(payload.placed);
    texts.emplace_back(reinterpret_cast<const char*>(payload.data), header.bytes);
  }
  void on_sent(std::uint64_t) override {}
  void on_down(int, const Status&) override {}

  std::byte* where = nullptr;
  int asked = 0;
  std::vector<Header> headers;
  std::vector<std::uint64_t> leases;
  std::vector<bool> placed;
  std::vector<std::string> texts;
};

class Frames : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    out.reset(ends[0]);
    in.reset(ends[1]);
  }
  static Header frame(MessageKind kind, std::size_t bytes, std::uint32_t channel = 1) {
    Header header;
    header.kind = kind;
    header.bytes = bytes;
    header.channel = channel;
    return header;
  }
  Descriptor out;
  Descriptor in;
  BufferPool pool;
  FrameReader reader{1, pool};
  FrameQueue queue;
  FrameMessages sink;
  std::vector<Completion> completed;
};

TEST_F(Frames, cut_anywhere_they_are_put_together_again) {
  const std::string small = "a small one";
  const std::string large(500, 'L');
  std::string stream;
  for (const std::string* text : {&small, &large, &small}) {
    const WireHeader header = frame(MessageKind::eager, text->size());
    stream.append(reinterpret_cast<const char*>(&header), sizeof header).append(*text);
  }
  for (const char byte : stream) {
    ASSERT_EQ(::write(out.get(), &byte, 1), 1);
    ASSERT_EQ(reader.read(in.get(), sink), FrameReader::End::drained);
  }
  EXPECT_EQ(sink.texts, (std::vector<std::string>{small, large, small}));
  EXPECT_EQ(sink.leases[0], 0u);
  EXPECT_NE(sink.leases[1], 0u);
}

TEST_F(Frames, large_data_goes_where_the_sink_says) {
  std::string place(100'000, '?');
  sink.where = reinterpret_cast<std::byte*>(place.data());
  const std::string text(100'000, 'D');
  queue.push_lent(frame(MessageKind::data, text.size()), text.data(), 0, 9);
  while (sink.headers.empty()) {
    ASSERT_NE(queue.write(out.get(), completed), FrameQueue::Written::failed);
    ASSERT_EQ(reader.read(in.get(), sink), FrameReader::End::drained);
  }
  EXPECT_EQ(place, text);
  EXPECT_TRUE(sink.placed[0]);
  EXPECT_EQ(sink.asked, 1);
  ASSERT_EQ(completed.size(), 1u);
  EXPECT_EQ(completed[0].token, 9u);
  EXPECT_EQ(queue.bytes(), 0u);
}

TEST_F(Frames, forget_in_the_middle_touches_neither_end_any_more) {
  std::string place(400'000, '?');
  sink.where = reinterpret_cast<std::byte*>(place.data());
  auto text = std::make_unique<std::string>(400'000, 'D');
  queue.push_lent(frame(MessageKind::data, text->size(), 5), text->data(), 0, 9);
  ASSERT_EQ(queue.write(out.get(), completed), FrameQueue::Written::some);
  ASSERT_EQ(reader.read(in.get(), sink), FrameReader::End::drained);
  ASSERT_TRUE(sink.headers.empty());
  queue.forget(5);
  reader.forget(5);
  text.reset();
  std::string().swap(place);
  while (sink.headers.empty()) {
    ASSERT_NE(queue.write(out.get(), completed), FrameQueue::Written::failed);
    ASSERT_EQ(reader.read(in.get(), sink), FrameReader::End::drained);
  }
  // The message still arrives, in other memory.
  EXPECT_EQ(sink.texts[0], std::string(400'000, 'D'));
  EXPECT_FALSE(sink.placed[0]);
  EXPECT_TRUE(completed.empty());
}

TEST_F(Frames, many_leave_in_order_whatever_the_socket_takes_at_once) {
  for (std::size_t i = 0; i < 3000; ++i) {
    const std::string text(i % 300, static_cast<char>('a' + i % 26));
    queue.push_copy(frame(MessageKind::eager, text.size()), text.data(), 0);
  }
  while (sink.headers.size() < 3000) {
    ASSERT_NE(queue.write(out.get(), completed), FrameQueue::Written::failed);
    ASSERT_EQ(reader.read(in.get(), sink), FrameReader::End::drained);
    for (std::uint64_t& lease : sink.leases) pool.release(std::exchange(lease, 0));
  }
  for (std::size_t i = 0; i < 3000; ++i)
    ASSERT_EQ(sink.texts[i], std::string(i % 300, static_cast<char>('a' + i % 26)));
}

// Channel 1 has large frames in the queue, the first of them half out. Channel 2's small ones pass
// those that have not begun; channel 1's own does not.
TEST_F(Frames, small_ones_go_ahead_of_the_large_ones_of_other_channels_only) {
  const std::string large(1 << 20, 'L');
  const auto numbered = [](MessageKind kind, std::size_t bytes, std::uint32_t channel,
                           std::uint64_t sequence) {
    Header header = frame(kind, bytes, channel);
    header.sequence = sequence;
    return header;
  };
  for (std::uint64_t i = 1; i <= 3; ++i)
    queue.push_lent(numbered(MessageKind::data, large.size(), 1, i), large.data(), 0, i);
  ASSERT_EQ(queue.write(out.get(), completed), FrameQueue::Written::some);
  queue.push_copy(numbered(MessageKind::arrive, 4, 1, 4), "mine", 0);
  queue.push_copy(numbered(MessageKind::data, 5, 2, 5), "small", 0);
  queue.push_copy(numbered(MessageKind::data, 6, 2, 6), "second", 0);
  queue.push_copy(numbered(MessageKind::query, 0, 3, 7), "", 0);
  queue.push_lent(numbered(MessageKind::data, large.size(), 2, 8), large.data(), 0, 8);
  queue.push_copy(numbered(MessageKind::data, 3, 2, 9), "own", 0);
  while (sink.headers.size() < 9) {
    ASSERT_NE(queue.write(out.get(), completed), FrameQueue::Written::failed);
    ASSERT_NE(reader.read(in.get(), sink), FrameReader::End::corrupt);
  }
  std::vector<std::uint64_t> sequences;
  for (const Header& header : sink.headers) sequences.push_back(header.sequence);
  EXPECT_EQ(sequences, (std::vector<std::uint64_t>{1, 5, 6, 7, 2, 3, 4, 8, 9}));
  EXPECT_EQ(sink.texts[1], "small");
  EXPECT_EQ(sink.texts[2], "second");
  EXPECT_EQ(sink.texts[4], large);
  EXPECT_EQ(queue.bytes(), 0u);
}

// The first large one of the bulk channel 1 is half out; channels 2 and 4 are as their urgencies say.
TEST_F(Frames, of_more_urgent_channels_go_ahead_of_others_whatever_their_size) {
  const std::string large(1 << 20, 'L');
  const auto lent = [&](std::uint32_t channel, std::uint64_t sequence, Urgency urgency) {
    Header header = frame(MessageKind::data, large.size(), channel);
    header.sequence = sequence;
    queue.push_lent(header, large.data(), 0, sequence, urgency);
  };
  const auto copied = [&](std::uint32_t channel, std::uint64_t sequence, Urgency urgency) {
    Header header = frame(MessageKind::data, 5, channel);
    header.sequence = sequence;
    queue.push_copy(header, "small", 0, urgency);
  };
  for (std::uint64_t i = 1; i <= 3; ++i) lent(1, i, Urgency::bulk);
  ASSERT_EQ(queue.write(out.get(), completed), FrameQueue::Written::some);
  lent(2, 4, Urgency::normal);
  copied(1, 5, Urgency::bulk);
  EXPECT_EQ(queue.bytes_before(Urgency::urgent), 0u);
  lent(3, 6, Urgency::urgent);
  copied(4, 7, Urgency::bulk);
  copied(3, 8, Urgency::urgent);
  copied(2, 9, Urgency::normal);
  EXPECT_EQ(queue.bytes_before(Urgency::urgent), large.size() + 5 + 2 * sizeof(WireHeader));
  EXPECT_EQ(queue.bytes_before(Urgency::normal), 2 * (large.size() + 5 + 2 * sizeof(WireHeader)));
  EXPECT_EQ(queue.bytes_before(Urgency::bulk), queue.bytes());
  while (sink.headers.size() < 9) {
    ASSERT_NE(queue.write(out.get(), completed), FrameQueue::Written::failed);
    ASSERT_NE(reader.read(in.get(), sink), FrameReader::End::corrupt);
  }
  std::vector<std::uint64_t> sequences;
  for (const Header& header : sink.headers) sequences.push_back(header.sequence);
  EXPECT_EQ(sequences, (std::vector<std::uint64_t>{1, 6, 8, 4, 9, 7, 2, 3, 5}));
  EXPECT_EQ(queue.bytes(), 0u);
}

// A TLS record that the socket did not take keeps its last byte back, here the first of the large frame:
// nothing of that one counts as out, and yet nobody may come before it any more.
TEST_F(Frames, under_tls_nobody_passes_a_frame_whose_first_byte_is_encrypted) {
  Config config;
  config.tls = true;
  const auto context = *TlsContext::create(config, "a secret of thirty-two bytes ...");
  const int send_buffer = 4608;
  ASSERT_EQ(::setsockopt(out.get(), SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer), 0);
  ByteStream sender(std::move(out), context, TlsSide::client);
  ByteStream receiver(std::move(in), context, TlsSide::server);
  for (int turn = 0; turn < 10; ++turn) ASSERT_TRUE(sender.step().ok() && receiver.step().ok());

  constexpr std::size_t kRecordBytes = 16384;
  const std::string first(kRecordBytes - 1 - sizeof(WireHeader), 'A');
  const std::string large(100'000, 'C');
  const std::string small = "small";
  FrameReader checking(1, pool, 1, true);
  const auto sealed = [](const std::string& text, std::uint32_t channel) {
    return WireHeader::sealed(frame(MessageKind::data, text.size(), channel), text.data());
  };
  queue.push_copy(sealed(first, 1), first.data(), 0);
  queue.push_lent(sealed(large, 1), large.data(), 0, 7);
  ASSERT_EQ(queue.write(sender, completed), FrameQueue::Written::some);
  ASSERT_EQ(queue.bytes(), sizeof(WireHeader) + large.size());  // the case that is meant
  queue.push_copy(sealed(small, 2), small.data(), 0);
  for (int turn = 0; turn < 10'000 && sink.texts.size() < 3; ++turn) {
    ASSERT_NE(queue.write(sender, completed), FrameQueue::Written::failed);
    ASSERT_NE(checking.read(receiver, sink), FrameReader::End::corrupt) << checking.flaw();
  }
  EXPECT_TRUE(sink.texts == (std::vector<std::string>{first, large, small}));
}

TEST_F(Frames, a_header_that_cannot_be_one_is_corrupt_before_anything_is_allocated) {
  EXPECT_EQ(flaw_in(frame(MessageKind::data, kMaxFrameBytes), kMaxFrameBytes), nullptr);
  EXPECT_NE(flaw_in(frame(MessageKind::data, kMaxFrameBytes + 1), kMaxFrameBytes), nullptr);
  EXPECT_NE(flaw_in(frame(MessageKind::arrive, kMaxControlBytes + 1), kMaxFrameBytes), nullptr);
  EXPECT_NE(flaw_in(frame(MessageKind::goodbye, 1), kMaxFrameBytes), nullptr);
  EXPECT_NE(flaw_in(frame(static_cast<MessageKind>(99), 0), kMaxFrameBytes), nullptr);
  Header header = frame(MessageKind::data, 2);
  header.offset = ~std::uint64_t{0};
  EXPECT_NE(flaw_in(header, kMaxFrameBytes), nullptr);
  // As a version of long ago had it: "the bytes are in place already, so many of them".
  header = frame(MessageKind::bulk, 0);
  header.flags = 1;
  header.extra = 3 << 19;
  EXPECT_NE(flaw_in(header, kMaxFrameBytes), nullptr);
  const WireHeader wire = header;
  ASSERT_EQ(::write(out.get(), &wire, sizeof wire), static_cast<ssize_t>(sizeof wire));
  EXPECT_EQ(reader.read(in.get(), sink), FrameReader::End::corrupt);
  EXPECT_NE(std::string(reader.flaw()).find("flags"), std::string::npos);
  EXPECT_TRUE(sink.headers.empty());
}

// Every kind with every flag: only what the format page lists passes.
TEST_F(Frames, a_kind_has_its_own_flags_and_no_others) {
  const std::map<MessageKind, int> allowed = {
      {MessageKind::eager, kInternal},
      {MessageKind::request, kInternal | kCancel | kOffered},
      {MessageKind::ready, kRefuse | kTaken}};
  for (int kind = 0; kind <= static_cast<int>(MessageKind::news); ++kind)
    for (int flag = 1; flag < 256; flag *= 2) {
      Header header = frame(static_cast<MessageKind>(kind), 0);
      header.flags = static_cast<std::uint8_t>(flag);
      const auto at = allowed.find(header.kind);
      const bool may = at != allowed.end() && (at->second & flag) != 0;
      EXPECT_EQ(flaw_in(header, kMaxFrameBytes) == nullptr, may) << kind << " " << flag;
    }
}

TEST_F(Frames, bells_never_reach_the_sink) {
  const std::string text(300, 'b');
  queue.push_copy(frame(MessageKind::bell, 0), "", 0);
  queue.push_copy(frame(MessageKind::bell, text.size()), text.data(), 0);
  queue.push_copy(frame(MessageKind::query, 0), "", 0);
  ASSERT_EQ(queue.write(out.get(), completed), FrameQueue::Written::all);
  ASSERT_EQ(reader.read(in.get(), sink), FrameReader::End::drained);
  ASSERT_EQ(sink.headers.size(), 1u);
  EXPECT_EQ(sink.headers[0].kind, MessageKind::query);
}

// Small enough for the staging buffer, on lease, and read straight to its place: 50, 300 and 40,000
// bytes. Whatever bit is flipped on the way, what comes out is right as far as it goes.
TEST_F(Frames, one_flipped_bit_is_corrupt_and_never_wrong_data) {
  std::string stream;
  std::vector<std::string> texts;
  for (const std::size_t bytes : {50u, 300u, 40'000u}) {
    std::string text(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 7 + i / 256);
    const WireHeader wire = WireHeader::sealed(frame(MessageKind::data, bytes), text.data());
    stream.append(reinterpret_cast<const char*>(&wire), sizeof wire).append(text);
    texts.push_back(std::move(text));
  }
  const auto read = [&](const std::string& bytes) {
    SetUp();
    FrameReader checked(1, pool, 1, true);
    sink = {};
    auto end = FrameReader::End::nothing;
    for (std::size_t sent = 0; sent < bytes.size() && end != FrameReader::End::corrupt;) {
      const auto went = ::write(out.get(), bytes.data() + sent, bytes.size() - sent);
      EXPECT_GT(went, 0);
      sent += static_cast<std::size_t>(went);
      end = checked.read(in.get(), sink);
    }
    for (std::size_t i = 0; i < sink.texts.size(); ++i) EXPECT_EQ(sink.texts[i], texts[i]);
    for (const std::uint64_t lease : sink.leases) pool.release(lease);
    return end;
  };
  EXPECT_EQ(read(stream), FrameReader::End::drained);
  EXPECT_EQ(sink.texts.size(), 3u);
  for (std::size_t at = 0; at < stream.size(); at += at < 600 ? 1 : 397) {
    std::string flipped = stream;
    flipped[at] = static_cast<char>(flipped[at] ^ 1 << at % 8);
    ASSERT_EQ(read(flipped), FrameReader::End::corrupt) << at;
    ASSERT_LT(sink.texts.size(), 3u) << at;
  }
}

TEST_F(Frames, a_payload_without_a_checksum_says_so_in_a_header_that_has_one) {
  FrameReader checked(1, pool, 1, true);
  WireHeader wire = WireHeader::sealed(frame(MessageKind::eager, 5), "hello", false);
  queue.push_copy(wire, "hello", 0);
  ASSERT_EQ(queue.write(out.get(), completed), FrameQueue::Written::all);
  EXPECT_EQ(checked.read(in.get(), sink), FrameReader::End::drained);
  EXPECT_EQ(sink.texts, std::vector<std::string>{"hello"});
  EXPECT_EQ(sink.headers[0].flags, 0);
  wire.header.flags = 0;  // its header does not fit any more
  queue.push_copy(wire, "hello", 0);
  ASSERT_EQ(queue.write(out.get(), completed), FrameQueue::Written::all);
  EXPECT_EQ(checked.read(in.get(), sink), FrameReader::End::corrupt);
}

TEST_F(Frames, the_end_of_the_stream_comes_after_the_last_frame) {
  queue.push_copy(frame(MessageKind::abort, 3), "bye", 0);
  ASSERT_EQ(queue.write(out.get(), completed), FrameQueue::Written::all);
  out.reset();
  EXPECT_EQ(reader.read(in.get(), sink), FrameReader::End::drained);
  EXPECT_EQ(sink.texts, std::vector<std::string>{"bye"});
  EXPECT_EQ(reader.read(in.get(), sink), FrameReader::End::closed);
}

TEST_F(Frames, many_large_ones_are_read_without_a_detour) {
  std::string place(6 * 200'000, '?');
  sink.where = reinterpret_cast<std::byte*>(place.data());
  std::string all;
  for (std::size_t i = 0; i < 6; ++i) {
    const std::string text(200'000, static_cast<char>('a' + i));
    Header header = frame(MessageKind::data, text.size());
    header.offset = all.size();
    all += text;
    queue.push_lent(header, all.data() + header.offset, 0, i);
    while (sink.headers.size() <= i) {
      ASSERT_NE(queue.write(out.get(), completed), FrameQueue::Written::failed);
      ASSERT_EQ(reader.read(in.get(), sink), FrameReader::End::drained);
    }
  }
  EXPECT_EQ(place, all);
}

// Headers on the first stream, payloads of two channels on two others; the one that was announced last is
// here first.
TEST_F(Frames, on_other_streams_wait_for_none_of_another_channel) {
  FrameReader three(1, pool, 3);
  const std::string first(50'000, '1'), second(50'000, '2');
  Descriptor outs[2], ins[2];
  for (int i = 0; i < 2; ++i) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    outs[i].reset(ends[0]);
    ins[i].reset(ends[1]);
  }
  for (std::uint16_t stream : {1, 2}) {
    Header header = frame(MessageKind::data, first.size(), stream);
    header.spare = stream;
    queue.push_header(header, 0);
  }
  queue.push_copy(frame(MessageKind::data, 4, 2), "more", 0);
  ASSERT_EQ(queue.write(out.get(), completed), FrameQueue::Written::all);
  ASSERT_NE(three.read(in.get(), sink), FrameReader::End::corrupt);
  const auto bring = [&](int which, const std::string& text, std::size_t messages) {
    std::size_t written = 0;
    while (sink.headers.size() < messages) {
      const auto left = static_cast<ssize_t>(text.size() - written);
      const ssize_t went = ::write(outs[which].get(), text.data() + written, text.size() - written);
      ASSERT_TRUE(went > 0 || left == 0);
      written += static_cast<std::size_t>(std::max<ssize_t>(went, 0));
      ASSERT_NE(three.read(static_cast<std::size_t>(which) + 1, ins[which].get(), sink),
                FrameReader::End::corrupt);
    }
  };
  bring(1, second, 2);
  EXPECT_EQ(sink.texts, (std::vector<std::string>{second, "more"}));
  bring(0, first, 3);
  EXPECT_EQ(sink.texts.back(), first);
}

TEST_F(Frames, a_read_of_nothing_says_so) {
  EXPECT_EQ(reader.read(in.get(), sink), FrameReader::End::nothing);
}

// Two streams: headers on the first, some payloads on the second.
class TwoStreams : public Frames {
 protected:
  void SetUp() override {
    Frames::SetUp();
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    aside_out.reset(ends[0]);
    aside_in.reset(ends[1]);
  }
  static Header apart(std::size_t bytes, std::uint64_t sequence) {
    Header header = frame(MessageKind::data, bytes);
    header.sequence = sequence;
    header.spare = 1;
    return header;
  }
  std::vector<std::uint64_t> sequences() const {
    std::vector<std::uint64_t> all;
    for (const Header& header : sink.headers) all.push_back(header.sequence);
    return all;
  }
  void write_first() { ASSERT_EQ(queue.write(out.get(), completed), FrameQueue::Written::all); }
  Descriptor aside_out;
  Descriptor aside_in;
  FrameQueue aside;
  FrameReader two{1, pool, 2};
};

TEST_F(TwoStreams, what_overtakes_waits_for_what_was_sent_before) {
  const std::string large(60'000, 'L');
  queue.push_header(apart(large.size(), 1), 0);
  Header small = frame(MessageKind::eager, 5);
  small.sequence = 2;
  queue.push_copy(small, "small", 0);
  Header middle = frame(MessageKind::data, 300);
  middle.sequence = 3;
  queue.push_copy(middle, std::string(300, 'M').data(), 0);
  write_first();
  ASSERT_EQ(two.read(0, in.get(), sink), FrameReader::End::drained);
  EXPECT_TRUE(sink.headers.empty());
  EXPECT_TRUE(two.expects(1));
  aside.push_payload(apart(large.size(), 1), large.data(), 0, 9);
  while (sink.headers.empty()) {
    ASSERT_NE(aside.write(aside_out.get(), completed), FrameQueue::Written::failed);
    ASSERT_NE(two.read(1, aside_in.get(), sink), FrameReader::End::failed);
  }
  EXPECT_EQ(sequences(), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(sink.texts[0], large);
  EXPECT_EQ(sink.texts[1], "small");
  EXPECT_EQ(sink.texts[2], std::string(300, 'M'));
  EXPECT_EQ(sink.headers[0].spare, 0);
  ASSERT_EQ(completed.size(), 1u);
  EXPECT_EQ(completed[0].token, 9u);
  EXPECT_FALSE(two.expects(1));
}

TEST_F(TwoStreams, a_flipped_bit_on_the_second_stream_is_corrupt) {
  std::string large(60'000, 'L');
  FrameReader checked(1, pool, 2, true);
  queue.push_header(WireHeader::sealed(apart(large.size(), 1), large.data()), 0);
  write_first();
  ASSERT_EQ(checked.read(0, in.get(), sink), FrameReader::End::drained);
  large[12'345] = 'M';
  ASSERT_EQ(::write(aside_out.get(), large.data(), large.size()), 60'000);
  auto end = FrameReader::End::more;
  for (int i = 0; i < 100 && end != FrameReader::End::corrupt; ++i)
    end = checked.read(1, aside_in.get(), sink);
  EXPECT_EQ(end, FrameReader::End::corrupt);
  EXPECT_TRUE(sink.headers.empty());
}

TEST_F(TwoStreams, what_belongs_to_another_channel_does_not_wait) {
  const std::string large(60'000, 'L');
  queue.push_header(apart(large.size(), 1), 0);
  Header small = frame(MessageKind::data, 5, 2);
  small.sequence = 2;
  queue.push_copy(small, "small", 0);
  Header middle = frame(MessageKind::data, 300, 2);
  middle.sequence = 3;
  queue.push_copy(middle, std::string(300, 'M').data(), 0);
  write_first();
  ASSERT_EQ(two.read(0, in.get(), sink), FrameReader::End::drained);
  EXPECT_EQ(sequences(), (std::vector<std::uint64_t>{2, 3}));
  EXPECT_TRUE(two.expects(1));
}

// The bare payloads on the second stream have the order of the headers on the first.
TEST_F(TwoStreams, headers_of_payloads_elsewhere_pass_nobody) {
  const std::string large(1 << 20, 'L');
  queue.push_lent(frame(MessageKind::data, large.size(), 1), large.data(), 0, 1);
  ASSERT_EQ(queue.write(out.get(), completed), FrameQueue::Written::some);
  queue.push_lent(frame(MessageKind::data, large.size(), 1), large.data(), 0, 2);
  Header first = apart(20'000, 3);
  Header second = apart(20'000, 4);
  second.channel = 2;
  queue.push_header(first, 0);
  queue.push_header(second, 0);
  const std::string threes(20'000, '3'), fours(20'000, '4');
  aside.push_payload(first, threes.data(), 0, 3);
  aside.push_payload(second, fours.data(), 0, 4);
  while (sink.headers.size() < 4) {
    ASSERT_NE(queue.write(out.get(), completed), FrameQueue::Written::failed);
    ASSERT_NE(aside.write(aside_out.get(), completed), FrameQueue::Written::failed);
    ASSERT_NE(two.read(0, in.get(), sink), FrameReader::End::corrupt);
    ASSERT_NE(two.read(1, aside_in.get(), sink), FrameReader::End::failed);
  }
  EXPECT_EQ(sequences(), (std::vector<std::uint64_t>{0, 0, 3, 4}));
  EXPECT_EQ(sink.texts[2], threes);
  EXPECT_EQ(sink.texts[3], fours);
}

TEST_F(TwoStreams, a_payload_that_comes_before_its_header_stays_where_it_is) {
  const std::string large(20'000, 'L');
  aside.push_payload(apart(large.size(), 1), large.data(), 0, 0);
  ASSERT_EQ(aside.write(aside_out.get(), completed), FrameQueue::Written::all);
  EXPECT_EQ(two.read(1, aside_in.get(), sink), FrameReader::End::waiting);
  EXPECT_TRUE(sink.headers.empty());
  queue.push_header(apart(large.size(), 1), 0);
  write_first();
  ASSERT_EQ(two.read(0, in.get(), sink), FrameReader::End::drained);
  (void)two.read(1, aside_in.get(), sink);
  ASSERT_EQ(sink.texts.size(), 1u);
  EXPECT_EQ(sink.texts[0], large);
}

TEST_F(TwoStreams, the_first_rests_when_too_many_wait) {
  for (std::uint64_t i = 0; i < 200; ++i) queue.push_header(apart(100, i), 0);
  write_first();
  EXPECT_EQ(two.read(0, in.get(), sink), FrameReader::End::more);
  EXPECT_EQ(two.read(0, in.get(), sink), FrameReader::End::waiting);
  const std::string bytes(200 * 100, 'x');
  ASSERT_EQ(::write(aside_out.get(), bytes.data(), bytes.size()), 20'000);
  for (int turn = 0; turn < 20 && sink.headers.size() < 200; ++turn) {
    (void)two.read(1, aside_in.get(), sink);
    (void)two.read(0, in.get(), sink);
  }
  ASSERT_EQ(sink.headers.size(), 200u);
  for (std::uint64_t i = 0; i < 200; ++i) EXPECT_EQ(sink.headers[i].sequence, i);
}

TEST_F(TwoStreams, forget_moves_what_comes_on_another_stream_away) {
  std::string place(40'000, '?');
  sink.where = reinterpret_cast<std::byte*>(place.data());
  queue.push_header(apart(place.size(), 0), 0);
  write_first();
  ASSERT_EQ(two.read(0, in.get(), sink), FrameReader::End::drained);
  const std::string half(20'000, 'D');
  ASSERT_EQ(::write(aside_out.get(), half.data(), half.size()), 20'000);
  ASSERT_EQ(two.read(1, aside_in.get(), sink), FrameReader::End::drained);
  two.forget(1);
  std::string().swap(place);
  ASSERT_EQ(::write(aside_out.get(), half.data(), half.size()), 20'000);
  (void)two.read(1, aside_in.get(), sink);
  ASSERT_EQ(sink.texts.size(), 1u);
  EXPECT_EQ(sink.texts[0], half + half);
  EXPECT_FALSE(sink.placed[0]);
}

TEST_F(TwoStreams, a_stream_that_is_not_there_is_corrupt) {
  Header header = apart(100'000, 1);
  header.spare = 2;
  queue.push_header(header, 0);
  write_first();
  EXPECT_EQ(two.read(0, in.get(), sink), FrameReader::End::corrupt);
}

TEST_F(TwoStreams, an_end_is_seen_though_nothing_was_expected) {
  aside_out.reset();
  EXPECT_EQ(two.read(1, aside_in.get(), sink), FrameReader::End::closed);
}

TEST(SendPace, is_what_a_busy_connection_takes) {
  using std::chrono::milliseconds;
  SendPace pace;
  EXPECT_EQ(pace.bytes_in(milliseconds(1)), 0u);
  EXPECT_FALSE(pace.note(1 << 20, true, milliseconds(0)));  // the buffer's own size is no pace
  EXPECT_FALSE(pace.note(1'000'000, true, milliseconds(8)));
  EXPECT_FALSE(pace.note(1'000'000, true, milliseconds(16)));
  EXPECT_TRUE(pace.note(500'000, true, milliseconds(20)));
  EXPECT_EQ(pace.bytes_in(milliseconds(2)), 249'856u);  // 125 MB/s, in whole pages
  // A pause ends the count: idle time is no slowness.
  EXPECT_FALSE(pace.note(1'000'000, false, milliseconds(30)));
  EXPECT_FALSE(pace.note(1'000'000, true, milliseconds(1000)));
  EXPECT_TRUE(pace.note(5'000'000, true, milliseconds(1020)));
  EXPECT_EQ(pace.bytes_in(milliseconds(2)), 499'712u);
}

TEST(BufferPool, gives_memory_of_the_right_size_again_and_again) {
  BufferPool pool;
  std::vector<BufferPool::Buffer> taken;
  for (const std::size_t bytes : {1ul, 4096ul, 4097ul, 100'000ul, 1ul << 20}) {
    taken.push_back(pool.take(bytes));
    std::memset(taken.back().data, 7, bytes);  // address sanitizer checks the size
    for (std::size_t i = 0; i + 1 < taken.size(); ++i)
      EXPECT_NE(taken[i].lease, taken.back().lease);
  }
  std::byte* const third = taken[2].data;
  for (const auto& buffer : taken) pool.release(buffer.lease);
  EXPECT_EQ(pool.take(5000).data, third);  // kept
}

}  // namespace
}  // namespace tutti::transport
