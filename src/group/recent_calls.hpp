// group/recent_calls.hpp - calls that were resolved before: training loops repeat themselves.
//
// A call that differs from an earlier one in nothing but where its memory lies needs no checks and
// no choice again. Kept are simple calls: one buffer a side, no counts, no function of the user's.
//
// Thread-safety  none; blocking calls of one group do not overlap.
#pragma once

#include <array>
#include <cstddef>

#include "engine/launch.hpp"
#include "tutti/collectives.hpp"

namespace tutti::group {

class RecentCalls {
 public:
  void clear() { kept_ = {}; }
  // The launch for this call, its memory filled in; null: not one of the recent. Good until the
  // next find or keep.
  const engine::Launch* find(const Call& call);
  // Remembers it, and gives it back; null: it is not simple.
  const engine::Launch* keep(const Call& call, const engine::Launch& launch);

 private:
  struct Key {
    Collective collective = Collective::barrier;
    Dtype input_dtype = Dtype::u8;
    Dtype output_dtype = Dtype::u8;
    Algorithm algorithm = Algorithm::automatic;
    ReduceOp op = ReduceOp::sum;
    int root = 0;
    double scalar = 0;
    std::size_t input_count = 0;
    std::size_t output_count = 0;
    std::int64_t timeout_ns = 0;
    bool has_input = false;
    bool has_output = false;
  };
  struct Kept {
    Key key;
    bool valid = false;
    std::ptrdiff_t in_place_by = 0;  // output minus input, when in place
    engine::Launch launch;
  };
  static bool is_simple(const Call& call);
  static Key key_of(const Call& call);
  static bool matches(const Key& key, const Call& call);
  static bool lies_alike(const Kept& kept, const Call& call);
  static void move_memory(std::vector<engine::Piece>& pieces, const void* data);

  std::array<Kept, 8> kept_;
  std::size_t last_ = 0;
  std::size_t next_ = 0;
};

}  // namespace tutti::group
