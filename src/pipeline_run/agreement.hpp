// pipeline_run/agreement.hpp - whether all ranks of a pipeline were given the same.
#pragma once

#include "tutti/pipeline/run.hpp"

namespace tutti::pipeline {

// Collective. mismatch on every rank names one that differs from the first, and what both were given.
Status agree(Group& group, const PipelineOptions& options);

}  // namespace tutti::pipeline
