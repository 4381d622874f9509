"""Robots that find their way to a goal between round obstacles, and what their beams see."""

import math
import random


class World:
    def __init__(self, config, seed):
        self.config, self.random = config, random.Random(seed)
        self.reset()

    def reset(self):
        size = self.config.task.size
        self.obstacles = [
            (self.random.uniform(0, size), self.random.uniform(0, size)) for _ in range(self.config.task.obstacles)
        ]
        self.x, self.y, self.heading = size / 2, size / 2, self.random.uniform(-math.pi, math.pi)
        self.goal = (self.random.uniform(0, size), self.random.uniform(0, size))
        self.steps = 0
        return self.observe()

    def beam(self, angle):
        """Distance to the nearest obstacle that this beam meets."""
        nearest = self.config.sensor.reach
        cos, sin = math.cos(angle), math.sin(angle)
        for ox, oy in self.obstacles:
            along = (ox - self.x) * cos + (oy - self.y) * sin
            across = abs((oy - self.y) * cos - (ox - self.x) * sin)
            if 0 < along < nearest and across < self.config.task.radius:
                nearest = along
        return nearest / self.config.sensor.reach

    def observe(self):
        beams = self.config.sensor.beams
        seen = [self.beam(self.heading + (i / beams - 0.5) * self.config.sensor.angle) for i in range(beams)]
        away, turn = self.to_goal()
        return [*seen, away / self.config.task.size, math.cos(turn), math.sin(turn)]

    def to_goal(self):
        dx, dy = self.goal[0] - self.x, self.goal[1] - self.y
        return math.hypot(dx, dy), math.atan2(dy, dx) - self.heading

    def step(self, action):
        before, _ = self.to_goal()
        self.heading += (action - 1) * self.config.robot.turn
        self.x += self.config.robot.speed * math.cos(self.heading)
        self.y += self.config.robot.speed * math.sin(self.heading)
        self.steps += 1
        away, _ = self.to_goal()
        reward = (before - away) * self.config.reward.progress - self.config.reward.slack
        hit = any(math.hypot(ox - self.x, oy - self.y) < self.config.robot.radius for ox, oy in self.obstacles)
        reward -= self.config.reward.collision * hit
        done = hit or away < self.config.reward.near or self.steps >= self.config.task.limit
        return (self.reset() if done else self.observe()), reward, done
