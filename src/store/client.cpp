// A store at the other end of a socket. Each call under way has a connection to itself, taken from
// those that are idle or opened for it: a get that waits holds up nobody.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/auth.hpp"
#include "core/byte_stream.hpp"
#include "core/process_hooks.hpp"
#include "core/retransmission.hpp"
#include "core/secret.hpp"
#include "store/impatient.hpp"
#include "store/protocol.hpp"
#include "store/table.hpp"
#include "store/trust.hpp"
#include "tutti/store.hpp"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using store::RequestKind;
using store::Response;
using store::StoreRequest;

// What a server that is alive may take for an answer, on top of the time it was told to wait.
constexpr std::chrono::seconds kAnswerTimeout{30};

// Which server, and what it must know.
struct Destination {
  std::string address;
  Secret secret;
  std::uint64_t epoch = 0;
  store::Wires wires;
};

Status shake_hands(ByteStream& stream, const Destination& to, Nanoseconds deadline) {
  Handshake handshake = Handshake::client(to.secret, {kRoleStore, -1, to.epoch});
  handshake.bind(stream.binding());
  while (true) {
    const std::string out = handshake.take_output();
    if (Status status = stream.write_fully(out.data(), out.size(), deadline); !status.ok())
      return status;
    if (handshake.done()) return {};
    std::string in(handshake.wants(), '\0');
    if (Status status = stream.read_fully(in.data(), in.size(), deadline); !status.ok())
      return status;
    if (Status status = handshake.feed(in); !status.ok()) return status;
  }
}

Result<ByteStream> open_once(const Destination& to, Nanoseconds deadline) {
  if (Status status = store::check_secret_at(to.address, to.secret); !status.ok()) return status;
  auto socket = connect_to(to.address, deadline);
  if (!socket.ok()) return socket.status();
  if (store::is_local(to.address)) {
    const auto peer = peer_credentials(socket->get());
    if (!peer.ok()) return peer.status();
    if (peer->uid != ::geteuid())
      return Status(Code::corrupt,
                    fmt::format("the store at {} belongs to user {}, not to this one", to.address,
                                peer->uid));
  }
  retransmit_evenly(socket->get(), to.wires.dead_after);
  ByteStream stream(std::move(*socket), to.wires.tls);
  Status status = stream.open(deadline);
  if (status.ok()) status = shake_hands(stream, to, deadline);
  // It was there and hung up on us, as a crowded server does: not the same as nobody being there.
  if (status.code() == Code::io) return Status(Code::aborted, "turned away: " + status.message());
  if (!status.ok()) return status;
  return stream;
}

// Tries again after having been turned away and, when the server may not be up yet, after having
// found nobody. Anything else (a wrong secret, another version, no address at all) stays as it is.
enum class Server { may_come, was_there };
Result<ByteStream> open_patiently(const Destination& to, Nanoseconds deadline, Server server) {
  auto pause = milliseconds(1);
  while (true) {
    auto stream = open_once(to, deadline);
    const Code code = stream.status().code();
    if (code != Code::aborted && (code != Code::io || server == Server::was_there)) return stream;
    if (steady_clock().now() + pause >= deadline)
      return Status(Code::timed_out, stream.status().message());
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, milliseconds(100));
  }
}

Result<Response> exchange(ByteStream& stream, const StoreRequest& request, Nanoseconds deadline) {
  const std::string out = request.encode();
  if (Status status = stream.write_fully(out.data(), out.size(), deadline); !status.ok())
    return status;
  char head[store::kLengthBytes];
  if (Status status = stream.read_fully(head, sizeof head, deadline); !status.ok()) return status;
  auto length = store::frame_length({head, sizeof head});
  if (!length.ok()) return length.status();
  std::string body(*length, '\0');
  if (Status status = stream.read_fully(body.data(), body.size(), deadline); !status.ok())
    return status;
  return Response::decode(body);
}

class ClientStore final : public store::TrustedStore {
 public:
  ClientStore(Destination server, ByteStream first, std::optional<Nanoseconds> answer)
      : server_(std::move(server)), answer_(answer) {
    idle_.push_back(std::move(first));
  }

  std::string_view secret() const override { return server_.secret; }

  Status set(const std::string& key, const std::string& value) override {
    if (Status status = store::check_value(key, value); !status.ok()) return status;
    return call({RequestKind::set, 0, key, value, {}}).status();
  }

  Result<std::string> get(const std::string& key, milliseconds timeout) override {
    return text_of(call({RequestKind::get, timeout.count(), key, {}, {}}, timeout));
  }

  Status wait(const std::string& key, milliseconds timeout) override {
    return call({RequestKind::wait, timeout.count(), key, {}, {}}, timeout).status();
  }

  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    auto response = call({RequestKind::add, amount, key, {}, {}});
    if (!response.ok()) return response.status();
    return response->number;
  }

  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override {
    if (Status status = store::check_value(key, desired); !status.ok()) return status;
    // No value is that long, so the key does not hold it.
    if (expected.size() > kMaxValueBytes)
      return Status(Code::invalid_argument, "the expected value is longer than any value can be");
    return text_of(call({RequestKind::compare_set, 0, key, desired, expected}));
  }

  Result<bool> remove(const std::string& key) override {
    auto response = call({RequestKind::remove, 0, key, {}, {}});
    if (!response.ok()) return response.status();
    return response->number != 0;
  }

 private:
  static Result<std::string> text_of(Result<Response> response) {
    if (!response.ok()) return response.status();
    return std::move(response->text);
  }

  // One request to its end. An answer that is an error comes back as that error.
  Result<Response> call(const StoreRequest& request, milliseconds timeout = milliseconds(0)) {
    if (Status status = store::check_key(request.key); !status.ok()) return status;
    if (fork_guard_.crossed())
      return Status(Code::unsupported,
                    "this store was connected before fork(); connect anew in the child");
    const Nanoseconds deadline =
        store::wait_deadline(steady_clock().now(), timeout) + answer_.value_or(kAnswerTimeout);
    auto stream = take(deadline);
    if (!stream.ok()) return lost(stream.status());
    auto response = exchange(*stream, request, deadline);
    if (!response.ok()) return lost(response.status());
    give_back(std::move(*stream));
    if (response->code != Code::ok) return Status(response->code, response->text);
    return response;
  }

  Result<ByteStream> take(Nanoseconds deadline) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.ok()) return failure_;
      if (!idle_.empty()) {
        ByteStream stream = std::move(idle_.back());
        idle_.pop_back();
        return stream;
      }
    }
    return open_patiently(server_, deadline, Server::was_there);
  }

  void give_back(ByteStream stream) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(stream));
  }

  // A server that is gone stays gone. One that is slow may answer the next call.
  Status lost(const Status& status) {
    const std::string silent = "the store at " + server_.address + " does not answer";
    if (status.code() == Code::timed_out && answer_) return {Code::aborted, silent};
    if (status.code() == Code::timed_out) return status.annotate(silent);
    const std::lock_guard lock(mutex_);
    if (failure_.ok())
      failure_ = Status(Code::io, "lost the store at " + server_.address + ": " + status.message());
    return failure_;
  }

  const Destination server_;
  const std::optional<Nanoseconds>
      answer_;  // how long one that is alive may take, if not as always
  const ForkGuard fork_guard_;
  std::mutex mutex_;
  std::vector<ByteStream> idle_;
  Status failure_;
};

Result<std::shared_ptr<Store>> connect(const std::string& address, const std::string& secret,
                                       milliseconds timeout, std::uint64_t epoch,
                                       std::optional<Nanoseconds> answer) {
  const Nanoseconds deadline = store::wait_deadline(steady_clock().now(), timeout);
  auto wires = store::wires_at(address, secret);
  if (!wires.ok()) return wires.status();
  Destination to{address, secret, epoch, *std::move(wires)};
  auto stream = open_patiently(to, deadline, Server::may_come);
  if (!stream.ok())
    return stream.status().annotate(
        fmt::format("cannot join the store at {} within {} ms", address, timeout.count()));
  return std::shared_ptr<Store>(
      std::make_shared<ClientStore>(std::move(to), std::move(*stream), answer));
}

}  // namespace

inline namespace [[gnu::visibility("default")]] v1 {

Result<std::shared_ptr<Store>> connect_store(const std::string& address, const std::string& secret,
                                             milliseconds timeout, std::uint64_t epoch) {
  return connect(address, secret, timeout, epoch, std::nullopt);
}

}  // namespace v1

Result<std::shared_ptr<Store>> store::connect_impatiently(const std::string& address,
                                                          const std::string& secret,
                                                          milliseconds timeout, std::uint64_t epoch,
                                                          Nanoseconds answer) {
  return connect(address, secret, timeout, epoch, answer);
}

Status store::check_secret_at(const std::string& address, std::string_view secret) {
  if (secret.empty() && is_local(address)) return {};
  return check_secret(secret).annotate(
      fmt::format("whoever reaches the store at {} must prove a secret", address));
}

Result<store::Wires> store::wires_at(const std::string& address, std::string_view secret) {
  if (is_local(address)) return Wires();
  auto config = Config::from_environment();
  if (!config.ok()) return config.status();
  auto tls = TlsContext::create(*config, secret);
  if (!tls.ok()) return tls.status();
  return Wires{*std::move(tls), config->dead_after};
}

}  // namespace tutti
