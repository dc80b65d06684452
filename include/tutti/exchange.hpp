// tutti/exchange.hpp - exchanges that run beside compute, told by callbacks: what layers that are split
// over ranks are made of, for any framework or none.
#pragma once

#include "tutti/exchange/meter.hpp"
#include "tutti/exchange/pieces.hpp"
#include "tutti/exchange/ring.hpp"
#include "tutti/exchange/sequence_cut.hpp"
#include "tutti/exchange/times.hpp"
