#pragma once
#define WARP 32
