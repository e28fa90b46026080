"""The journal on disk: accepted requests, decisions and deliveries, each written before it is
acknowledged.
"""
