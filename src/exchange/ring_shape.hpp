// exchange/ring_shape.hpp - who passes what to whom in a ring of windows. Pure.
//
// Rank r is place w of window o: r = o · window + w. In round u, turn t it visits the block of place w − t of
// window o − u. One ring of all ranks is one window.
#pragma once

namespace tutti::exchange {

struct RingShape {
  int size = 1;
  int rank = 0;
  int window = 1;  // divides size

  int windows() const { return size / window; }
  int inner_next() const { return at(0, 1); }
  int inner_previous() const { return at(0, -1); }
  int outer_next() const { return at(1, 0); }
  int outer_previous() const { return at(-1, 0); }
  // Whose block is visited; one turn or round beyond the last is the first again.
  int source(int round, int turn) const { return at(-round, -turn); }

 private:
  int at(int windows_on, int places_on) const {
    const int o = (rank / window + windows_on % windows() + windows()) % windows();
    const int w = (rank % window + places_on % window + window) % window;
    return o * window + w;
  }
};

}  // namespace tutti::exchange
