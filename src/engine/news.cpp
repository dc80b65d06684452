// What goes round where not every pair of ranks has a link: that a group has failed, that a rank is gone.
//
// Each rank that hears something new passes it on over all links that it has, then acts on it. Links keep
// their order, so what a rank said before it went comes before the news of its end, by whichever way: before
// X told Y of an end it had told Y all that it knew of what came before.
//
// That a rank is gone is hearsay to whoever has no link to it: it makes one, and believes the news if that
// finds nobody (Endpoint::doubt). Whoever has one knows better.
#include <algorithm>

#include "engine/engine.hpp"
#include "engine/told_status.hpp"

namespace tutti::engine {

using transport::Header;
using transport::MessageKind;

namespace {

// In Header::extra. The rank, or the group by its key, is in Header::sequence: all news is of channel 0, so that
// it keeps its order.
enum Topic : std::uint64_t {
  kFailed = 1,     // a group; payload: the status
  kLost = 2,       // a rank is gone; payload: why
  kSuspected = 3,  // a rank is silent, and will be given up in a moment
  kLeaves = 4,     // whoever says so leaves in good order; not passed on
};

Header header_of(Topic topic, std::uint64_t about) {
  Header header = transport::header_for(MessageKind::news, 0, about);
  header.extra = topic;
  return header;
}

}  // namespace

void Engine::pass_on(const Header& header, std::string_view told, int except) {
  for (const int peer : endpoint_->linked())
    if (peer != except) (void)endpoint_->link(peer)->send(header, told.data(), told.size(), 0);
}

void Engine::hear_news(int from, const Header& header, std::string_view told) {
  const auto ranks = static_cast<std::uint64_t>(endpoint_->size());
  if (header.extra == kFailed) return hear_of_failure(from, header, told);
  if (header.extra == kLost && header.sequence < ranks) return hear_of_loss(from, header, told);
  if (header.extra == kLeaves) {
    left_[static_cast<std::size_t>(from)] = true;
    endpoint_->on_farewell(from);
  } else if (header.extra == kSuspected && header.sequence < ranks) {
    if (suspected_[header.sequence]) return;
    suspected_[header.sequence] = true;
    pass_on(header, told, from);
    endpoint_->suspect(static_cast<int>(header.sequence));
  }
}

bool Engine::is_first_news(std::uint64_t group, const std::string& told) {
  std::scoped_lock lock(news_mutex_);
  return failed_groups_.emplace(group, told).second;
}

void Engine::spread_failure(const ChannelOptions& group, const Status& status) {
  if (!endpoint_->is_lazy()) return;
  const std::string told = encode(status);
  if (is_first_news(key_of(group), told)) pass_on(header_of(kFailed, key_of(group)), told, -1);
}

// Groups that this rank has no part in, or not yet, are passed on likewise.
void Engine::hear_of_failure(int from, const Header& header, std::string_view told) {
  if (!is_first_news(header.sequence, std::string(told))) return;
  pass_on(header, told, from);
  const auto at = by_id_.find(static_cast<std::uint32_t>(header.sequence >> 32));
  const auto channel = at == by_id_.end() ? nullptr : at->second.lock();
  if (channel && key_of(channel->options()) == header.sequence) channel->fail(decode(told), true);
}

// Of a rank that left, that cannot be understood, or that is blameless, there is nothing to tell.
void Engine::spread_loss(int peer, const Status& reason) {
  const auto index = static_cast<std::size_t>(peer);
  if (!endpoint_->is_lazy() || left_[index] || lost_by_news_[index]) return;
  if (reason.code() != Code::peer_lost || reason.peer() != peer) return;
  lost_by_news_[index] = true;
  pass_on(header_of(kLost, static_cast<std::uint64_t>(peer)), encode(reason), peer);
  endpoint_->on_farewell(peer);
}

void Engine::hear_of_loss(int from, const Header& header, std::string_view told) {
  const int peer = static_cast<int>(header.sequence);
  if (lost_by_news_[header.sequence] || peer == endpoint_->rank()) return;
  lost_by_news_[header.sequence] = true;
  pass_on(header, told, from);
  endpoint_->on_farewell(peer);
  endpoint_->doubt(peer, decode(told));
}

void Engine::on_suspicion(int peer) {
  suspected_[static_cast<std::size_t>(peer)] = true;
  if (endpoint_->is_lazy())
    pass_on(header_of(kSuspected, static_cast<std::uint64_t>(peer)), {}, peer);
}

// What was said to a rank of groups that are no more here, while there was no link.
void Engine::on_up(int peer) {
  for (const auto& [id, members] : members_of_ended_)
    if (std::find(members.begin(), members.end(), peer) != members.end())
      (void)endpoint_->link(peer)->send(transport::header_for(MessageKind::goodbye, id, 0), nullptr,
                                        0, 0);
}

void Engine::say_farewell() {
  if (!endpoint_->is_lazy()) return;
  between_polls([&](transport::Endpoint&) { pass_on(header_of(kLeaves, 0), {}, -1); });
}

}  // namespace tutti::engine
