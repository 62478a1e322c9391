"""The shop's admin."""

from django.contrib import admin

from shop.models import Category, Maker, Product, Review


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    list_display = ("name", "category", "maker", "price", "published", "created")
    list_filter = ("category", "published")
    list_select_related = ("category", "maker")
    search_fields = ("name", "description")
    date_hierarchy = "created"


admin.site.register((Category, Maker, Review))
