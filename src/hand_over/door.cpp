#include "hand_over/door.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "core/auth.hpp"
#include "topology/discover.hpp"

namespace tutti::hand_over {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kSecretBytes = 32;
// Whoever has drawn a ticket says its word at once, or is gone.
constexpr milliseconds kSaysWithin{2000};
// For an address that may be one of a network that is not ours.
constexpr milliseconds kTryEach{3000};

constexpr const char* kWords = "hand_over/words";
std::string word_key(std::int64_t ticket) { return fmt::format("hand_over/word/{}", ticket); }
std::string call_key(std::int64_t ticket) { return fmt::format("hand_over/call/{}", ticket); }
std::string answer_key(std::int64_t ticket) { return fmt::format("hand_over/answer/{}", ticket); }
constexpr const char* kComing = "coming";
constexpr const char* kNotComing = "not coming";
// Between its call and its place others may be called.
constexpr milliseconds kPlaceWithin{20'000};
std::string place_key(std::int64_t ticket) { return fmt::format("hand_over/place/{}", ticket); }

std::string host_and_pid() {
  std::array<char, 256> name{};
  (void)::gethostname(name.data(), name.size() - 1);
  return fmt::format("host {}, pid {}", name.data(), ::getpid());
}

std::string with_port(const std::string& host, const std::string& port) {
  return host.find(':') == std::string::npos ? host + port : "[" + host + "]" + port;
}

// Where a server that listens everywhere is reached from other hosts.
std::string reachable(const Config& config, const std::string& port) {
  if (!config.host.empty()) return with_port(config.host, port);
  std::string list;
  for (const topology::Interface& interface : topology::discover_interfaces()) {
    const bool wanted = config.interface.empty() || interface.name == config.interface;
    if (!interface.up || interface.loopback || !wanted) continue;
    for (const std::string& address : interface.addresses)
      if (!address.starts_with("fe80"))
        list += (list.empty() ? "" : ",") + with_port(address, port);
  }
  return list.empty() ? with_port("127.0.0.1", port) : list;
}

std::string encode(const Word& word) {
  return fmt::format("{} {} {} {} {}", word.leaves ? "goodbye" : "ready", word.number, word.version,
                     word.on_host ? "host" : "device", word.where);
}

std::optional<Word> decode(const std::string& text) {
  std::array<char, 8> says{};
  std::array<char, 8> has{};
  Word word;
  unsigned long long version = 0;
  int read = 0;
  if (std::sscanf(text.c_str(), "%7s %d %llu %7s %n", says.data(), &word.number, &version,
                  has.data(), &read) != 4)
    return {};
  word.leaves = std::string_view(says.data()) == "goodbye";
  word.version = version;
  word.on_host = std::string_view(has.data()) == "host";
  word.where = text.substr(static_cast<std::size_t>(read)).substr(0, 60);
  return word;
}

}  // namespace

Result<std::shared_ptr<Group>> join_round(const std::shared_ptr<Store>& store, const Place& place,
                                          const std::string& name, const Config& config) {
  GroupOptions options;
  options.rank = place.rank;
  options.size = place.size;
  options.name = name;
  options.config = config;
  auto part = make_prefix_store(fmt::format("hand_over/round/{}/", place.round), store);
  return Group::create(std::move(part), std::move(options));
}

Result<std::unique_ptr<Entrance>> Entrance::open(std::string address, std::string secret,
                                                 const Config& config, bool one_host) {
  std::unique_ptr<Entrance> door(new Entrance());
  door->secret_ = secret.empty() ? random_bytes(kSecretBytes) : std::move(secret);
  if (address.empty()) address = one_host ? "127.0.0.1:0" : "0.0.0.0:0";
  auto server = StoreServer::listen(address, door->secret_);
  if (!server.ok())
    return server.status().annotate("the door for receivers of weights at " + address);
  door->server_ = *std::move(server);
  const std::string at = door->server_->address();
  const std::string port = at.substr(at.rfind(':'));
  const bool everywhere = at.starts_with("0.0.0.0:") || at.starts_with("[::]:");
  const std::string here = with_port("127.0.0.1", port);
  door->addresses_ = !everywhere ? at : one_host ? here : reachable(config, port);
  auto store = connect_store(everywhere ? here : at, door->secret_,
                             std::chrono::duration_cast<milliseconds>(config.join_timeout));
  if (!store.ok()) return store.status();
  door->store_ = *std::move(store);
  return door;
}

Result<std::vector<Word>> Entrance::hear() {
  const auto said = store_->add(kWords, 0);
  if (!said.ok()) return said.status();
  std::vector<Word> words;
  while (heard_ < *said) {
    const std::string key = word_key(++heard_);
    const auto text = store_->get(key, kSaysWithin);
    if (!text.ok() && text.status().code() != Code::timed_out) return text.status();
    auto word = text.ok() ? decode(*text) : std::nullopt;
    (void)store_->remove(key);
    if (!word) continue;
    word->ticket = heard_;
    words.push_back(*std::move(word));
  }
  return words;
}

Result<bool> Entrance::is_coming(std::int64_t ticket) {
  if (Status status = store_->set(call_key(ticket), ""); !status.ok()) return status;
  const auto answer = store_->get(answer_key(ticket), kSaysWithin);
  (void)store_->remove(answer_key(ticket));
  if (!answer.ok() && answer.status().code() != Code::timed_out) return answer.status();
  return answer.ok() && *answer == kComing;
}

Status Entrance::give_place(std::int64_t ticket, const Place& place) {
  return store_->set(place_key(ticket),
                     fmt::format("{} {} {}", place.round, place.rank, place.size));
}

Result<std::unique_ptr<Visitor>> Visitor::come(const std::string& addresses,
                                               const std::string& secret, milliseconds timeout,
                                               std::optional<int> number) {
  std::unique_ptr<Visitor> visitor(new Visitor());
  visitor->where_ = host_and_pid();
  Status last(Code::invalid_argument, "no address to receive weights from");
  for (std::size_t begin = 0; begin < addresses.size() && !visitor->store_;) {
    const std::size_t end = std::min(addresses.find(',', begin), addresses.size());
    const bool only = begin == 0 && end == addresses.size();
    auto store = connect_store(addresses.substr(begin, end - begin), secret,
                               only ? timeout : std::min(timeout, kTryEach));
    if (store.ok()) visitor->store_ = *std::move(store);
    last = store.status();
    begin = end + 1;
  }
  if (!visitor->store_) return last.annotate("coming to the trainer at " + addresses);
  if (number) {
    visitor->number_ = *number;
    return visitor;
  }
  const auto stranger = visitor->store_->add("hand_over/strangers", 1);
  if (!stranger.ok()) return stranger.status();
  visitor->number_ = -static_cast<int>(*stranger);
  return visitor;
}

Result<std::int64_t> Visitor::say(const Word& word) {
  const auto ticket = store_->add(kWords, 1);
  if (!ticket.ok()) return ticket;
  const Status status = store_->set(word_key(*ticket), encode(word));
  return status.ok() ? ticket : Result<std::int64_t>(status);
}

Result<std::int64_t> Visitor::say_ready(std::uint64_t version, bool on_host) {
  return say({0, false, number_, version, on_host, where_});
}

void Visitor::say_goodbye() { (void)say({0, true, number_, 0, true, where_}); }

Result<Place> Visitor::place_for(std::int64_t ticket, milliseconds timeout) {
  if (Status called = store_->wait(call_key(ticket), timeout); !called.ok()) return called;
  (void)store_->remove(call_key(ticket));
  if (Status said = store_->set(answer_key(ticket), kComing); !said.ok()) return said;
  const auto text = store_->get(place_key(ticket), kPlaceWithin);
  if (!text.ok()) return text.status();
  (void)store_->remove(place_key(ticket));
  long long round = 0;
  Place place;
  if (std::sscanf(text->c_str(), "%lld %d %d", &round, &place.rank, &place.size) != 3)
    return Status(Code::corrupt, "the trainer gave a place that cannot be read");
  place.round = round;
  return place;
}

void Visitor::decline(std::int64_t ticket) { (void)store_->set(answer_key(ticket), kNotComing); }

}  // namespace tutti::hand_over
