-- The image makes the first database by itself.
CREATE DATABASE beta OWNER mail;
