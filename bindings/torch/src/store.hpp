// store.hpp - torch's key-value store, as the one in which tutti's ranks meet.
#pragma once

#include <memory>

#include "compat.hpp"
#include "tutti/store.hpp"

namespace tutti_torch {

// Any thread may call it; calls are made one at a time, for torch's stores do not all allow more.
std::shared_ptr<tutti::Store> adapt(c10::intrusive_ptr<c10d::Store> store);

}  // namespace tutti_torch
