"""Choice of the configuration to measure next: expected gain, cost, chance to be better.

Readers and the driver; arrays in, arrays out, without Ray and files. The step time is the one
unknown of a candidate: each of its costs is a known function of it. In reading order:

    objectives      costs of candidates as functions of their step times, and what is known of those
    gain            expected gain of a measurement, and chance that it beats the answer
    first_points    the cheap first points, far apart
    choice          the next points by gain per accelerator-second
"""
