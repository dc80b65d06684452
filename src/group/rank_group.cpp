#include "group/rank_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/secret.hpp"
#include "engine/stages.hpp"
#include "group/calibrate_links.hpp"
#include "group/gather_all.hpp"
#include "group/self.hpp"
#include "group/switch_cost.hpp"
#include "group/tuning.hpp"
#include "topology/topology.hpp"
#include "tutti/shape.hpp"

namespace tutti::group {

RankGroup::RankGroup(std::shared_ptr<World> world, std::shared_ptr<engine::Channel> channel,
                     ReductionOrder order)
    : world_(std::move(world)), channel_(std::move(channel)) {
  setting_.rank = channel_->options().rank;
  setting_.size = channel_->size();
  setting_.host_of = channel_->options().host_of;
  setting_.walk = channel_->options().walk;
  setting_.order = order;
  setting_.config = &world_->engine().config();
  setting_.catalog = &world_->engine().catalog();
  take_machine();
}

// Every rank chooses alike; one of them tells why.
void RankGroup::take_machine() {
  setting_.machine_of.clear();
  if (!world_->machine_of().empty())
    for (const int member : channel_->options().members)
      setting_.machine_of.push_back(world_->machine_of()[static_cast<std::size_t>(member)]);
  chooser_.use(world_->machine(), rank() == 0 ? world_->engine().log() : Log());
  setting_.has_switch = channel_->options().switch_rank >= 0;
  setting_.switch_cost = world_->switch_cost();
  recent_.clear();  // what was chosen by other figures
}

RankGroup::~RankGroup() {
  if (world_->is_foreign()) return;
  // Whoever has not heard of a failure yet hears of it before it sees this rank leave: the first
  // cause is what counts.
  if (const Status failure = channel_->health(); !failure.ok()) channel_->tell(failure);
  // Whatever is still under way ends before its memory goes back to the caller.
  channel_->end(
      {Code::aborted, fmt::format("group '{}' was destroyed on rank {}", name(), rank())});
  world_->engine().close_channel(*channel_);
  // What it had on a device is put away there, and some of that keeps the world: it goes now, if it can.
  const auto context = world_->engine().device_context();
  channel_.reset();
  if (context) context->step();
}

Status RankGroup::check_process() const {
  if (!world_->is_foreign()) return {};
  return {
      Code::unsupported,
      fmt::format("group '{}' belongs to the parent process; a child of fork() must create its own",
                  name())};
}

// ---- collectives

namespace {

// The sides of a call that this rank has; nobody looks at the others.
struct OwnSides {
  std::span<const ConstBuffer> input;
  std::span<const Buffer> output;

  OwnSides(const Call& call, int rank) {
    const CollectiveShape& shape = shape_of(call.collective);
    if (shape.input.is_there(rank == call.root)) input = call.input;
    if (shape.output.is_there(rank == call.root)) output = call.output;
  }
};

template <class Sides>
bool says_device(const Sides& sides) {
  const auto says_so = [](const auto& buffer) { return buffer.device == Device::cuda; };
  return std::any_of(sides.input.begin(), sides.input.end(), says_so) ||
         std::any_of(sides.output.begin(), sides.output.end(), says_so);
}

// Calls on CPU memory come here, too: for them one look must do.
bool is_on_device(const Call& call, int rank) {
  return says_device(call) && says_device(OwnSides(call, rank));
}

// Of a buffer that its caller takes for one on a GPU. Where there can be none, that is what to tell.
Status not_on_gpu() {
  const auto devices = cuda::count_devices();
  if (!devices.ok()) return devices.status();
  return {Code::invalid_argument, "a buffer is said to be on a GPU, but is not"};
}

// The GPU that a call's buffers are on; absent: they are in CPU memory. Said to be on one, and not: an error.
Result<std::optional<int>> gpu_of(const Call& call, int rank) {
  std::optional<int> found;
  const auto look = [&](const auto& buffer) -> Status {
    if (buffer.device != Device::cuda) return {};
    if (!found) found = -1;
    if (buffer.count == 0) return {};
    const auto ordinal = cuda::device_of(buffer.data);
    if (!ordinal.ok() || *ordinal < 0)
      return (ordinal.ok() ? not_on_gpu() : ordinal.status()).annotate(to_string(call.collective));
    if (*found >= 0 && *found != *ordinal)
      return {Code::invalid_argument, fmt::format("{}: buffers are on cuda:{} and on cuda:{}",
                                                  to_string(call.collective), *found, *ordinal)};
    found = *ordinal;
    return {};
  };
  const OwnSides sides(call, rank);
  for (const ConstBuffer& buffer : sides.input)
    if (Status status = look(buffer); !status.ok()) return status;
  for (const Buffer& buffer : sides.output)
    if (Status status = look(buffer); !status.ok()) return status;
  return found;
}

}  // namespace

// On device memory a call that blocks is one that its caller's stream waits for.
Status RankGroup::run_on_device(const Call& call) {
  auto started = start_on_device(call, true);
  return started.ok() ? started->wait_on(call.options.stream) : started.status();
}

Result<Work> RankGroup::start_on_device(const Call& call, bool in_stream) {
  const auto gpu = gpu_of(call, rank());
  if (!gpu.ok()) return gpu.status();
  if (Status status = prepare_device(gpu->value_or(-1), call.options.timeout); !status.ok())
    return status.annotate(to_string(call.collective));
  const cuda::CurrentDevice current(channel_->device()->device());
  auto launch = make_launch(call, setting_, chooser_);
  if (!launch.ok()) return launch.status();
  launch->in_stream = in_stream;
  const auto capturing = channel_->device()->device().is_capturing(launch->stream);
  if (!capturing.ok()) return capturing.status();
  if (!*capturing) return Work(channel_->start(*std::move(launch), false));
  if (launch->after)
    return Status(
        Code::unsupported,
        fmt::format("{} cannot be captured in a CUDA graph: it comes after {}, which is no "
                    "part of the graph",
                    to_string(call.collective), launch->after->describe()));
  if (Status status = channel_->capture(*launch); !status.ok()) return status;
  return Work();
}

Status RankGroup::run(const Call& call) {
  return guarded([&] { return run_call(call); });
}

Status RankGroup::run_call(const Call& call) {
  if (world_->is_foreign()) return check_process();
  if (is_on_device(call, rank())) return run_on_device(call);
  if (const engine::Launch* launch = recent_.find(call))
    return channel_->run(*launch, call.options.interrupted);
  auto launch = make_launch(call, setting_, chooser_);
  if (!launch.ok()) return launch.status();
  if (const engine::Launch* kept = recent_.keep(call, *launch))
    return channel_->run(*kept, call.options.interrupted);
  return channel_->run(*launch, call.options.interrupted);
}

Work RankGroup::start(const Call& call) {
  if (Status status = check_process(); !status.ok()) return Work::finished(status);
  auto work = guarded([&]() -> Result<Work> {
    if (is_on_device(call, rank())) return start_on_device(call, false);
    auto launch = make_launch(call, setting_, chooser_);
    if (!launch.ok()) return launch.status();
    return Work(channel_->start(*std::move(launch), false));
  });
  return work.ok() ? *std::move(work) : Work::finished(work.status());
}

// ---- point to point

Result<std::vector<engine::Posting>> RankGroup::postings_of(std::span<const Transfer> transfers,
                                                            const CallOptions& options) {
  const bool on_device = std::any_of(transfers.begin(), transfers.end(), [](const Transfer& each) {
    return each.buffer.device == Device::cuda;
  });
  if (Status status = check_options(options, on_device || transfers.empty()); !status.ok())
    return status.annotate("send and recv");
  std::vector<engine::Posting> postings;
  for (const Transfer& transfer : transfers) {
    const bool is_send = transfer.kind == Transfer::Kind::send;
    const bool any = !is_send && transfer.peer == kAnySource;
    if (!any && (transfer.peer < 0 || transfer.peer >= size()))
      return Status(Code::invalid_argument,
                    fmt::format("{}: {} is not a rank of a group of {}", is_send ? "send" : "recv",
                                transfer.peer, size()));
    if (transfer.buffer.data == nullptr && transfer.buffer.count != 0)
      return Status(Code::invalid_argument,
                    fmt::format("{}: the buffer is null but has {} elements",
                                is_send ? "send" : "recv", transfer.buffer.count));
    if (transfer.buffer.ready != nullptr)
      return Status(Code::unsupported,
                    "send and recv: `ready` must be null; pass a stream instead");
    engine::Posting posting;
    posting.is_send = is_send;
    posting.data = static_cast<std::byte*>(transfer.buffer.data);
    posting.bytes = transfer.buffer.bytes();
    posting.peer = transfer.peer;
    posting.tag = transfer.tag;
    posting.timeout = options.timeout.count() > 0 ? options.timeout : setting_.config->timeout;
    if (transfer.buffer.device == Device::cuda)
      if (Status status = put_on_device(posting, options.stream); !status.ok())
        return status.annotate("send and recv");
    postings.push_back(std::move(posting));
  }
  return postings;
}

// Two ranks need not ask the others: each brings its own GPU, and they find out what they can reach.
Status RankGroup::put_on_device(engine::Posting& posting, void* stream) {
  const auto gpu = posting.bytes == 0 ? Result<int>(-1) : cuda::device_of(posting.data);
  if (!gpu.ok()) return gpu.status();
  if (posting.bytes != 0 && *gpu < 0) return not_on_gpu();
  auto context = open_device(*gpu);
  if (!context.ok()) return context.status();
  const auto capturing = (*context)->device().is_capturing(stream);
  if (!capturing.ok() || *capturing)
    return capturing.ok() ? Status(Code::unsupported,
                                   "messages cannot be captured in a CUDA graph: hosts match them")
                          : capturing.status();
  auto end = engine::DeviceEnd::create(*context, stream, posting.data, posting.bytes);
  if (end.ok()) posting.device = *std::move(end);
  return end.status();
}

Work RankGroup::transfer(std::span<const Transfer> transfers, const CallOptions& options) {
  if (Status status = check_process(); !status.ok()) return Work::finished(status);
  auto work = guarded([&]() -> Result<Work> {
    auto postings = postings_of(transfers, options);
    if (!postings.ok()) return postings.status();
    return Work(channel_->post(*std::move(postings), false,
                               engine::Dependencies::of(options.dependencies)));
  });
  return work.ok() ? *std::move(work) : Work::finished(work.status());
}

Result<Received> RankGroup::exchange(std::span<const Transfer> transfers,
                                     const CallOptions& options) {
  if (Status status = check_process(); !status.ok()) return status;
  return guarded([&]() -> Result<Received> {
    auto postings = postings_of(transfers, options);
    if (!postings.ok()) return postings.status();
    const auto work =
        channel_->post(*std::move(postings), true, engine::Dependencies::of(options.dependencies));
    if (Status status = channel_->finish(*work, options.interrupted); !status.ok()) return status;
    return work->received();
  });
}

// ---- the rest

tuner::CallFacts RankGroup::facts_of(Collective collective, std::size_t bytes) const {
  tuner::CallFacts facts;
  facts.collective = collective;
  facts.bytes = bytes;
  facts.ranks = size();
  facts.host_of = setting_.host_of;
  facts.walk = setting_.walk;
  facts.machine_of = setting_.machine_of;
  facts.order = setting_.order;
  facts.has_switch = setting_.has_switch && bytes <= engine::kMostSwitchedBytes;
  facts.switch_cost = setting_.switch_cost.get();
  facts.catalog = setting_.catalog;
  return facts;
}

Result<Prediction> RankGroup::predict(Collective collective, std::size_t bytes) {
  return predict_by(facts_of(collective, bytes), chooser_);
}

Result<Prediction> RankGroup::predict(Collective collective, std::size_t bytes,
                                      std::span<const int> ranks) {
  std::vector<int> hosts, machines;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size())
      return Status(Code::invalid_argument,
                    fmt::format("predict: {} is not a rank of a group of {}", rank, size()));
    const auto index = static_cast<std::size_t>(rank);
    hosts.push_back(setting_.host_of[index]);
    if (!setting_.machine_of.empty()) machines.push_back(setting_.machine_of[index]);
  }
  tuner::CallFacts facts = facts_of(collective, bytes);
  facts.ranks = static_cast<int>(ranks.size());
  facts.host_of = hosts;
  const std::vector<int> walk = topology::walk_among(setting_.walk, ranks);
  facts.walk = walk;
  facts.machine_of = machines;
  // What it remembers holds for one set of ranks.
  Chooser chooser;
  chooser.use(world_->machine(), Log());
  return predict_by(facts, chooser);
}

Result<Prediction> RankGroup::predict_by(tuner::CallFacts facts, Chooser& chooser) const {
  const Algorithm forced = setting_.config->algorithm[static_cast<std::size_t>(facts.collective)];
  auto choice = chooser.choose(facts, forced);
  if (!choice.ok()) return choice.status();
  // Choices are made for powers of two; the time is asked for these bytes.
  auto exact = tuner::choose_forced(facts, choice->algorithm, chooser.machine());
  if (!exact.ok()) return exact.status();
  if (exact->predicted == tuner::kUnknownTime)
    return Status(
        Code::unsupported,
        fmt::format("predict: {} by {} of {} ranks is too large to be played",
                    to_string(facts.collective), to_string(choice->algorithm), facts.ranks));
  facts.symmetric = true;
  auto shared = tuner::choose_forced(facts, choice->algorithm, chooser.machine());
  if (!shared.ok()) return shared.status();
  return Prediction{exact->predicted, std::min(exact->predicted, shared->predicted),
                    exact->algorithm};
}

Algorithm RankGroup::set_up_algorithm(Collective collective) const {
  if (!world_->engine().endpoint().is_lazy()) return Algorithm::direct;
  if (collective != Collective::all_gather) return Algorithm::binomial_tree;
  return std::has_single_bit(static_cast<unsigned>(size())) ? Algorithm::hypercube
                                                            : Algorithm::bruck;
}

Status RankGroup::tune() {
  if (!world_->tunes()) return {};
  TuningOptions options;
  options.config = *setting_.config;
  options.log = world_->engine().log();
  options.host_of = setting_.host_of;
  options.gather = set_up_algorithm(Collective::all_gather);
  options.tell = set_up_algorithm(Collective::broadcast);
  const ProbePeers peers = ProbePeers::find(setting_.host_of);
  for (const int peer : {peers.memory, peers.tcp}) {
    const transport::Link* link =
        peer < 0 || rank() != 0 ? nullptr : world_->engine().endpoint().link(peer);
    if (link == nullptr) continue;
    options.links += fmt::format("{}{}", options.links.empty() ? "" : " ", link->name());
    options.over_network |= !link->shares_memory();
  }
  auto machine = agree_on_machine(*this, options);
  if (!machine.ok()) return machine.status();
  world_->set_machine(std::move(machine->machine), std::move(machine->machine_of));
  world_->engine().home().settle(machine->own_core);
  take_machine();
  const auto& hosts = world_->host_of();
  const bool meet = std::all_of(hosts.begin(), hosts.end(), [](int host) { return host == 0; });
  return world_->switch_rank() < 0 || meet ? Status() : price_switch();
}

// A call of each size is timed by all ranks, who go by the slowest one's.
Status RankGroup::price_switch() {
  auto cost = measure_switch(*this, internal_call(setting_.config->join_timeout));
  if (!cost.ok()) return cost.status().annotate("measuring the switch");
  if (!cost->empty()) world_->set_switch_cost(*std::move(cost));
  take_machine();
  return {};
}

void RankGroup::abort(const std::string& reason) {
  if (world_->is_foreign()) return;
  channel_->fail({Code::aborted,
                  fmt::format("rank {} aborted group '{}': {}", rank(), name(), reason),
                  {rank(), -1, 0}},
                 true);
}

}  // namespace tutti::group

namespace tutti::group {

Result<std::shared_ptr<Group>> create_group(std::shared_ptr<Store> store, GroupOptions options,
                                            std::unique_ptr<StoreServer> server, bool has_grown) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    return Status(Code::invalid_argument,
                  fmt::format("rank {} of a group of {} cannot be", options.rank, options.size));
  if (!store) return Status(Code::invalid_argument, "a group cannot be created without a store");
  Config config;
  if (options.config) {
    config = *options.config;
  } else {
    auto found = Config::from_environment();
    if (!found.ok()) return found.status();
    config = *std::move(found);
  }
  const auto join_timeout = config.join_timeout;
  // Segments hold whole elements of any type, on whole cache lines.
  config.segment_bytes = std::max<std::size_t>(config.segment_bytes / 64 * 64, 64);
  auto world =
      World::create(std::move(store), options, std::move(config), std::move(server), has_grown);
  wipe(options.secret);
  if (!world.ok()) return world.status();
  engine::ChannelOptions channel;
  channel.id = 1;
  channel.name = options.name;
  channel.rank = options.rank;
  for (int rank = 0; rank < options.size; ++rank) channel.members.push_back(rank);
  channel.host_of = (*world)->host_of();
  channel.switch_rank = (*world)->switch_rank();
  auto made = (*world)->engine().open_channel(std::move(channel));
  made->begin_set_up();
  auto group = std::make_shared<RankGroup>(*world, std::move(made), options.reduction_order);
  // Nobody goes on before everybody is here: after this the store and its server are not needed.
  CallOptions join;
  join.algorithm = group->set_up_algorithm(Collective::barrier);
  join.timeout = join_timeout;
  if (Status status = group->barrier(join); !status.ok())
    return status.annotate("joining the group");
  group->all_have_joined();
  if (Status status = group->share_host_memory(); !status.ok())
    return status.annotate("joining the group");
  if (Status status = group->find_walk(); !status.ok()) return status;
  if (Status status = group->tune(); !status.ok()) return status;
  group->end_set_up();
  if (options.takes_back) (*world)->say_takes_back();
  return std::shared_ptr<Group>(std::move(group));
}

}  // namespace tutti::group

namespace tutti {
inline namespace v1 {
namespace {

Result<std::shared_ptr<Group>> create_from_environment(GroupOptions options) {
  auto self = group::find_self(group::process_environment());
  if (!self.ok()) return self.status();
  if (!options.config) {
    auto config = Config::from_environment();
    if (!config.ok()) return config.status();
    options.config = *std::move(config);
  }
  const auto timeout =
      std::chrono::duration_cast<std::chrono::milliseconds>(options.config->join_timeout);
  auto meeting = group::meet(*self, timeout);
  if (!meeting.ok()) return meeting.status();
  options.rank = self->rank;
  options.size = self->size;
  if (options.secret.empty()) options.secret = self->secret.text();
  return group::create_group(meeting->store, std::move(options), std::move(meeting->server));
}

}  // namespace

Result<std::shared_ptr<Group>> Group::create(std::shared_ptr<Store> store, GroupOptions options) {
  return or_exhausted(
      [&] { return group::create_group(std::move(store), std::move(options), nullptr); });
}

Result<std::shared_ptr<Group>> Group::from_environment(GroupOptions options) {
  return or_exhausted([&] { return create_from_environment(std::move(options)); });
}

}  // namespace v1
}  // namespace tutti
