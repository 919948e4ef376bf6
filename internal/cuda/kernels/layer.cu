// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The image: one translation unit of all stages, built by internal/cmd/cubuild.

#include "route.cu"

#include "plan.cu"

#include "experts.cu"

#include "combine.cu"

#include "backward_plan.cu"

#include "backward_down.cu"

#include "backward_gate_up.cu"

#include "backward_route.cu"

#include "fold_index.cu"

#include "fold_experts.cu"

#include "fold_router.cu"

#include "numbers.cu"

// The digest of these sources and of the compiler's flags: read back on the GPU, it says that the image is the source's.
extern "C" __device__ char samebit_digest[] = SAMEBIT_DIGEST;
