// A header of the host, which has folders of its own.
#pragma once

inline constexpr int kHostStatus = 5;
