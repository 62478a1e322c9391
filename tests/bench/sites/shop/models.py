"""What the shop sells, who makes it, and what customers say of it."""

from django.conf import settings
from django.db import models


class Category(models.Model):
    name = models.CharField(max_length=60, unique=True)
    slug = models.SlugField(unique=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return str(self.name)


class Maker(models.Model):
    name = models.CharField(max_length=60)
    country = models.CharField(max_length=40)

    def __str__(self) -> str:
        return str(self.name)


class Product(models.Model):
    name = models.CharField(max_length=100)
    description = models.TextField()
    price = models.DecimalField(max_digits=8, decimal_places=2)
    category = models.ForeignKey(Category, models.CASCADE, related_name="products")
    maker = models.ForeignKey(Maker, models.CASCADE, related_name="products")
    published = models.BooleanField(default=True)
    created = models.DateTimeField(db_index=True)

    class Meta:
        ordering = ("-created", "-id")

    def __str__(self) -> str:
        return str(self.name)


class Review(models.Model):
    product = models.ForeignKey(Product, models.CASCADE, related_name="reviews")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE)
    stars = models.PositiveSmallIntegerField()
    text = models.TextField()
    written = models.DateTimeField()

    class Meta:
        ordering = ("-written", "-id")
