#include "mesh/step_run.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "mesh/boxes.hpp"
#include "tutti/dtypes.hpp"

namespace tutti::mesh {
namespace {

// Of messages that carry boxes.
constexpr std::uint32_t kTransferTag = 0x72656469;

using Scratch = std::unique_ptr<std::byte[]>;

Scratch scratch_for(std::size_t bytes) {
  return std::make_unique_for_overwrite<std::byte[]>(bytes);
}

const std::byte* bytes_of(const ConstBuffer& buffer) {
  return static_cast<const std::byte*>(buffer.data);
}
std::byte* bytes_of(const Buffer& buffer) { return static_cast<std::byte*>(buffer.data); }

// The positions along the step's axes through this one, in the order of the mesh.
std::vector<int> members_of(const StepTask& task) {
  std::vector<int> members;
  const Coordinates own = coordinates_of(task.before.axes, task.position);
  for (int position = 0; position < ranks_of(task.before.axes); ++position) {
    Coordinates at = coordinates_of(task.before.axes, position);
    for (const int axis : task.step.axes)
      at[static_cast<std::size_t>(axis)] = own[static_cast<std::size_t>(axis)];
    if (at == own) members.push_back(position);
  }
  return members;
}

// What this rank gives to each member, and gets from it, in a collective.
struct Sides {
  PartList give, get;
  bool even = true;  // on all members alike
};

// Of all members, before and after.
struct MemberBoxes {
  std::vector<TensorBox> had, has;

  explicit MemberBoxes(const StepTask& task) {
    for (const int member : members_of(task)) {
      had.push_back(task.before.box(member));
      has.push_back(task.step.after.box(member));
    }
  }
};

bool are_alike(const std::vector<TensorBox>& boxes) {
  return std::all_of(boxes.begin(), boxes.end(),
                     [&](const TensorBox& box) { return box.count() == boxes[0].count(); });
}

// All members have to give the same answer: their calls differ otherwise.
bool is_even(StepKind kind, const MemberBoxes& boxes) {
  if (kind == StepKind::all_gather) return are_alike(boxes.had);
  if (kind == StepKind::reduce_scatter) return are_alike(boxes.has);
  std::vector<TensorBox> shares;
  for (const TensorBox& from : boxes.had)
    for (const TensorBox& to : boxes.has) shares.push_back(common(from, to));
  return are_alike(shares);
}

Sides sides_of(const StepTask& task) {
  const TensorBox had = task.before.box(task.position);
  const TensorBox has = task.step.after.box(task.position);
  std::vector<TensorBox> give, get;
  if (task.step.kind == StepKind::all_reduce) return {PartList(had, {}), PartList(has, {})};
  const MemberBoxes boxes(task);
  for (std::size_t i = 0; i < boxes.had.size(); ++i) {
    if (task.step.kind != StepKind::all_gather) give.push_back(common(had, boxes.has[i]));
    if (task.step.kind != StepKind::reduce_scatter) get.push_back(common(boxes.had[i], has));
  }
  return {PartList(had, std::move(give)), PartList(has, std::move(get)),
          is_even(task.step.kind, boxes)};
}

bool lies_in_order(const StepTask& task) {
  const Sides sides = sides_of(task);
  return sides.give.lies_in_order() && sides.get.lies_in_order();
}

Status call(const StepTask& task, const Sides& sides, Group& along, ConstBuffer input,
            Buffer output) {
  switch (task.step.kind) {
    case StepKind::all_gather:
      return sides.even ? along.all_gather(input, output)
                        : along.all_gather_v(input, output, sides.get.counts());
    case StepKind::reduce_scatter:
      return sides.even ? along.reduce_scatter(input, output, task.op)
                        : along.reduce_scatter_v(input, sides.give.counts(), output, task.op);
    case StepKind::all_to_all:
      return sides.even
                 ? along.all_to_all(input, output)
                 : along.all_to_all_v(input, sides.give.counts(), output, sides.get.counts());
    case StepKind::all_reduce: return along.all_reduce(input, output, task.op);
    case StepKind::slice:
    case StepKind::transfer:
    case StepKind::make_partial: break;
  }
  return {Code::internal, "this step is no collective"};
}

// The bytes of 1 in any type.
std::vector<std::byte> one_of(Dtype dtype) {
  const DtypeInfo& info = info_of(dtype);
  std::uint64_t bits = 1;
  if (info.is_float())
    bits = ((std::uint64_t{1} << (info.exponent_bits - 1)) - 1) << info.mantissa_bits;
  std::vector<std::byte> bytes(info.bytes);
  std::memcpy(bytes.data(), &bits, bytes.size());
  return bytes;
}

// What changes nothing when it is folded.
void fill_with_identity(ReduceOp op, Buffer output) {
  std::memset(output.data, 0, output.bytes());
  if (op != ReduceOp::prod) return;
  const std::vector<std::byte> one = one_of(output.dtype);
  for (std::size_t at = 0; at < output.bytes(); at += one.size())
    std::memcpy(bytes_of(output) + at, one.data(), one.size());
}

// Whether a value folded with itself is that value.
bool may_be_everywhere(ReduceOp op) {
  return op != ReduceOp::sum && op != ReduceOp::prod && op != ReduceOp::bxor;
}

// Sends and receives of one rank, with the memory that they need.
class ParcelPost {
 public:
  ParcelPost(const StepTask& task, const std::vector<int>& rank_at, ConstBuffer input,
             Buffer output)
      : rank_at_(rank_at),
        had_(task.before.box(task.position)),
        has_(task.step.after.box(task.position)),
        input_(input),
        output_(output),
        element_bytes_(size_of(output.dtype)) {}

  void send(int position, std::vector<TensorBox> boxes) {
    const PartList parts(had_, std::move(boxes));
    const InOnePiece lies = one_piece(parts, had_);
    std::byte* data = const_cast<std::byte*>(bytes_of(input_)) +
                      static_cast<std::size_t>(lies.offset) * element_bytes_;
    if (!lies.is) {
      data = kept_.emplace_back(scratch_for(parts.count() * element_bytes_)).get();
      parts.pack(bytes_of(input_), data, element_bytes_);
    }
    add(Transfer::Kind::send, position, data, parts.count());
  }

  void receive(int position, std::vector<TensorBox> boxes) {
    PartList parts(has_, std::move(boxes));
    const InOnePiece lies = one_piece(parts, has_);
    std::byte* data = bytes_of(output_) + static_cast<std::size_t>(lies.offset) * element_bytes_;
    if (!lies.is) {
      data = kept_.emplace_back(scratch_for(parts.count() * element_bytes_)).get();
      arrivals_.emplace_back(std::move(parts), data);
      return add(Transfer::Kind::recv, position, data, arrivals_.back().first.count());
    }
    add(Transfer::Kind::recv, position, data, parts.count());
  }

  Status run(Group& group) {
    copy_part(common(had_, has_), {had_, bytes_of(input_)}, {has_, bytes_of(output_)},
              element_bytes_);
    if (!transfers_.empty())
      if (const auto done = group.exchange(transfers_, {}); !done.ok()) return done.status();
    for (const auto& [parts, data] : arrivals_)
      parts.unpack(data, bytes_of(output_), element_bytes_);
    return {};
  }

 private:
  static InOnePiece one_piece(const PartList& parts, const TensorBox& box) {
    return parts.only() != nullptr ? lies_in(*parts.only(), box) : InOnePiece{};
  }

  void add(Transfer::Kind kind, int position, std::byte* data, std::size_t count) {
    transfers_.push_back({kind, Buffer{data, count, output_.dtype},
                          rank_at_[static_cast<std::size_t>(position)], kTransferTag});
  }

  const std::vector<int>& rank_at_;
  const TensorBox had_, has_;
  ConstBuffer input_;
  Buffer output_;
  std::size_t element_bytes_;
  std::vector<Scratch> kept_;
  std::vector<std::pair<PartList, std::byte*>> arrivals_;
  std::vector<Transfer> transfers_;
};

}  // namespace

bool copies_nothing(const RedistributionStep& step, const TensorLayout& before) {
  if (step.ranks == 1 || step.kind == StepKind::transfer) return false;
  for (int position = 0; position < ranks_of(before.axes); ++position)
    if (!lies_in_order({step, before, position})) return false;
  return true;
}

Status run_collective(const StepTask& task, Group& along, ConstBuffer input, Buffer output) {
  const std::size_t element_bytes = size_of(output.dtype);
  const Sides sides = sides_of(task);
  Scratch packed, arrived;
  ConstBuffer given = input;
  Buffer got = output;
  if (!sides.give.lies_in_order()) {
    packed = scratch_for(input.bytes());
    sides.give.pack(bytes_of(input), packed.get(), element_bytes);
    given = ConstBuffer(packed.get(), sides.give.count(), input.dtype);
  }
  if (!sides.get.lies_in_order()) {
    arrived = scratch_for(output.bytes());
    got = Buffer{arrived.get(), sides.get.count(), output.dtype};
  }
  if (Status status = call(task, sides, along, given, got); !status.ok()) return status;
  if (arrived) sides.get.unpack(arrived.get(), bytes_of(output), element_bytes);
  return {};
}

Status run_transfer(const StepTask& task, Group& mesh, const std::vector<int>& rank_at,
                    const std::vector<int>& hosts, ConstBuffer input, Buffer output) {
  const DeliveryList list = plan_deliveries(
      {task.before, Arrangement::of(task.before), Arrangement::of(task.step.after), hosts});
  std::map<int, std::vector<TensorBox>> sends, receives;  // by peer
  for (const Delivery& delivery : list.deliveries) {
    if (delivery.from == task.position) sends[delivery.to].push_back(delivery.box);
    if (delivery.to == task.position) receives[delivery.from].push_back(delivery.box);
  }
  ParcelPost post(task, rank_at, input, output);
  for (auto& [position, boxes] : sends) post.send(position, std::move(boxes));
  for (auto& [position, boxes] : receives) post.receive(position, std::move(boxes));
  return post.run(mesh);
}

void run_alone(const StepTask& task, ConstBuffer input, Buffer output) {
  const TensorBox had = task.before.box(task.position);
  const TensorBox has = task.step.after.box(task.position);
  const Coordinates own = coordinates_of(task.before.axes, task.position);
  if (output.count == 0) return;
  if (task.step.kind == StepKind::make_partial) {
    const AxisPlacement& made =
        task.step.after.placements[static_cast<std::size_t>(task.step.axes.at(0))];
    const bool is_first = std::all_of(task.step.axes.begin(), task.step.axes.end(), [&](int axis) {
      return own[static_cast<std::size_t>(axis)] == 0;
    });
    if (!is_first && !may_be_everywhere(made.op)) return fill_with_identity(made.op, output);
  }
  copy_part(has, {had, bytes_of(input)}, {has, bytes_of(output)}, size_of(output.dtype));
}

}  // namespace tutti::mesh
