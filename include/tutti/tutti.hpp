// tutti/tutti.hpp - everything, for those who do not want to pick.
#pragma once

#include "tutti/buffer.hpp"
#include "tutti/collectives.hpp"
#include "tutti/config.hpp"
#include "tutti/group.hpp"
#include "tutti/mesh.hpp"
#include "tutti/redistribution.hpp"
#include "tutti/shared_heap.hpp"
#include "tutti/status.hpp"
#include "tutti/store.hpp"
#include "tutti/switch.hpp"
#include "tutti/symmetric_pool.hpp"
#include "tutti/tensor_layout.hpp"
#include "tutti/trace.hpp"
#include "tutti/types.hpp"
#include "tutti/version.h"
#include "tutti/work.hpp"
