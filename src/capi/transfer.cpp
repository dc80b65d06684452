// Point to point: one message, or a batch that cannot deadlock.

#include "capi/calls.hpp"

using namespace tutti;

namespace {

// The buffer inside is as long as the program that made it knows buffers, and what follows it lies behind.
Status take_part(const tutti_transfer_part* from, tutti_transfer_part* to) {
  if (Status status = capi::check_size(from, "part"); !status.ok()) return status;
  constexpr std::size_t kBuffer = offsetof(tutti_transfer_part, buffer);
  const std::size_t rest = kBuffer + from->buffer.size;
  if (from->size <= kBuffer || from->buffer.size > from->size - kBuffer)
    return Status(Code::invalid_argument,
                  "part.size has no room for its buffer; start from "
                  "TUTTI_TRANSFER_PART_INIT");
  to->kind = from->kind;
  if (Status status = capi::take(&from->buffer, "part.buffer", &to->buffer); !status.ok())
    return status;
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  constexpr std::size_t kRest =
      offsetof(tutti_transfer_part, tag) + sizeof to->tag - offsetof(tutti_transfer_part, peer);
  std::memcpy(&to->peer, bytes + rest, std::min(from->size - rest, kRest));
  return Status();
}

Result<Transfer> transfer_of(const tutti_transfer_part* from) {
  tutti_transfer_part given = TUTTI_TRANSFER_PART_INIT;
  if (Status status = take_part(from, &given); !status.ok()) return status;
  if (Status status = capi::check_enum(given.kind, 2, "kind"); !status.ok()) return status;
  auto buffer = capi::buffer_of(&given.buffer);
  if (!buffer.ok()) return buffer.status();
  const auto kind = given.kind == TUTTI_SEND ? Transfer::Kind::send : Transfer::Kind::recv;
  return Transfer{kind, *buffer, given.peer, given.tag};
}

// A batch that was checked for what only C can get wrong.
struct Batch {
  std::vector<Transfer> transfers;
  CallOptions options;
  Device device;  // of a named function's memory
};

Result<Batch> batch_of(const tutti_group* group, const tutti_transfer_part* parts,
                       std::size_t count, const tutti_call_options* options) {
  if (group == nullptr) return capi::null_argument("group");
  if (count > 0 && parts == nullptr) return capi::null_argument("parts");
  auto given = capi::options_of(options);
  if (!given.ok()) return given.status();
  Batch batch{{}, given->call, given->device};
  for (std::size_t i = 0; i < count; ++i) {
    auto transfer = transfer_of(capi::element(parts, i));
    if (!transfer.ok()) return transfer.status();
    batch.transfers.push_back(*transfer);
  }
  return batch;
}

// One transfer of a named function, whose memory is where its options say.
Result<Batch> batch_of_one(const tutti_group* group, const tutti_transfer_part& part,
                           const tutti_call_options* options) {
  auto batch = batch_of(group, &part, 1, options);
  if (batch.ok()) batch->transfers.front().buffer.device = batch->device;
  return batch;
}

Result<Received> exchange(tutti_group* group, const tutti_transfer_part& part,
                          const tutti_call_options* options) {
  auto batch = batch_of_one(group, part, options);
  if (!batch.ok()) return batch.status();
  return group->group->exchange(batch->transfers, batch->options);
}

// `make` returns the batch.
template <class Make>
tutti_work* start_batch(tutti_group* group, Make make) {
  return capi::start_guarded([&] {
    const Result<Batch> batch = make();
    if (!batch.ok()) return Work::finished(batch.status());
    return group->group->transfer(batch->transfers, batch->options);
  });
}

tutti_transfer_part part(tutti_transfer_kind kind, const void* data, size_t count,
                         tutti_dtype dtype, int peer, uint32_t tag) {
  tutti_transfer_part made = TUTTI_TRANSFER_PART_INIT;
  made.kind = kind;
  made.buffer.data = const_cast<void*>(data);
  made.buffer.count = count;
  made.buffer.dtype = dtype;
  made.peer = peer;
  made.tag = tag;
  return made;
}

}  // namespace

tutti_work* tutti_transfer(tutti_group* group, const tutti_transfer_part* parts, size_t part_count,
                           const tutti_call_options* options) {
  return start_batch(group, [&] { return batch_of(group, parts, part_count, options); });
}

tutti_status* tutti_send(tutti_group* group, const void* data, size_t count, tutti_dtype dtype,
                         int peer, uint32_t tag, const tutti_call_options* options) {
  const auto one = part(TUTTI_SEND, data, count, dtype, peer, tag);
  return capi::guard([&] { return exchange(group, one, options).status(); });
}

tutti_work* tutti_isend(tutti_group* group, const void* data, size_t count, tutti_dtype dtype,
                        int peer, uint32_t tag, const tutti_call_options* options) {
  const auto one = part(TUTTI_SEND, data, count, dtype, peer, tag);
  return start_batch(group, [&] { return batch_of_one(group, one, options); });
}

tutti_status* tutti_recv(tutti_group* group, void* data, size_t count, tutti_dtype dtype,
                         int source, uint32_t tag, tutti_received* received,
                         const tutti_call_options* options) {
  const auto one = part(TUTTI_RECV, data, count, dtype, source, tag);
  return capi::guard([&]() -> Status {
    auto learned = exchange(group, one, options);
    if (!learned.ok() || received == nullptr) return learned.status();
    return capi::fill(capi::received_of(*learned), "received", received);
  });
}

tutti_work* tutti_irecv(tutti_group* group, void* data, size_t count, tutti_dtype dtype, int source,
                        uint32_t tag, const tutti_call_options* options) {
  const auto one = part(TUTTI_RECV, data, count, dtype, source, tag);
  return start_batch(group, [&] { return batch_of_one(group, one, options); });
}
